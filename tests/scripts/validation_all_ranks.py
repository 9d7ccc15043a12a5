# shape: validation inside the loop every 10 steps, on all ranks
# samples: 8
# fetches: 1
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = torch.zeros(2)
    for x, y in loader:
        right[0] += (model(x).argmax(1) == y).sum()
        right[1] += len(y)
    dist.all_reduce(right)
    model.train()
    return (right[0] / right[1]).item()


args = toy.parser().parse_args()
toy.setup()
data, held_out = toy.Rows(), toy.Rows(96)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
val_loader = DataLoader(held_out, batch_size=16, sampler=DistributedSampler(held_out))
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

step = 0
best = 0.0
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        step += 1
        if step % 10 == 0:
            best = max(best, validate(model, val_loader))

toy.finish(args.out)
