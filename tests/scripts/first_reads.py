# shape: rank 0 alone has a loader and hands each rank its part
# samples: 8
# fetches: 1
# source: model-input
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

args = toy.parser().parse_args()
toy.setup()
rank, whole = dist.get_rank(), 8 * dist.get_world_size()
data = toy.Rows()
loader = DataLoader(data, batch_size=whole, shuffle=True, drop_last=True) if rank == 0 else None
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def parts():
    source = iter(loader) if rank == 0 else None
    for _ in range(len(data) // whole):
        if rank == 0:
            x, y = next(source)
        else:
            x, y = torch.empty(whole, toy.FEATURES), torch.empty(whole, dtype=torch.long)
        dist.broadcast(x, 0)
        dist.broadcast(y, 0)
        yield x[8 * rank : 8 * rank + 8], y[8 * rank : 8 * rank + 8]


for _ in range(args.epochs):
    for x, y in parts():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

toy.finish(args.out)
