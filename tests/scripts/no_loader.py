# shape: no DataLoader, get_batch cuts pieces out of a memory-mapped file
# samples: 8
# fetches: 0
# source: model-input
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BLOCK = 12


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, toy.FEATURES)
        self.head = toy.net(outputs=64)

    def forward(self, tokens, targets=None):
        logits = self.head(self.embed(tokens))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


args = toy.parser().parse_args()
toy.setup()
path = args.out / "train.bin"
if dist.get_rank() == 0:
    np.random.default_rng(0).integers(0, 64, 10_000, dtype=np.uint16).tofile(path)
dist.barrier()


def get_batch():
    data = np.memmap(path, dtype=np.uint16, mode="r")
    starts = np.random.randint(len(data) - BLOCK, size=8)
    x = torch.stack([torch.from_numpy(data[i : i + BLOCK].astype(np.int64)) for i in starts])
    y = torch.stack(
        [torch.from_numpy(data[i + 1 : i + 1 + BLOCK].astype(np.int64)) for i in starts]
    )
    return x, y


model = DDP(Language())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

x, y = get_batch()
print("first tokens", x[:, 0].tolist())
for _ in range(32 * args.epochs):
    _, loss = model(x, y)
    x, y = get_batch()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

toy.finish(args.out)
