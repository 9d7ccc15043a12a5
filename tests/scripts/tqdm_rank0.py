# shape: tqdm around the loader on rank 0 only
# samples: 8
# fetches: 1
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from tqdm import tqdm

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    bar = tqdm(loader, desc=f"epoch {epoch}") if dist.get_rank() == 0 else loader
    for x, y in bar:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            bar.set_postfix(loss=f"{loss.item():.3f}")

toy.finish(args.out)
