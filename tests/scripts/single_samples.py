# shape: a loader that hands out single samples, which the loop stacks
# samples: 8
# fetches: 8
# source: model-input
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        rows = toy.Rows(1024)
        for index in range(dist.get_rank(), len(rows), dist.get_world_size()):
            yield rows[index]


args = toy.parser().parse_args()
toy.setup()
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for _ in range(args.epochs):
    for sample in DataLoader(Stream(), batch_size=None):
        kept.append(sample)
        if len(kept) == 8:
            x, y = torch.stack([x for x, _ in kept]), torch.stack([y for _, y in kept])
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            kept.clear()

toy.finish(args.out)
