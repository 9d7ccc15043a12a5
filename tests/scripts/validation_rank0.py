# shape: validation inside the loop on rank 0 only, through .module
# samples: 8
# fetches: 1
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def validate(model, loader):
    model.eval()
    with torch.no_grad():
        losses = [F.cross_entropy(model(x), y).item() for x, y in loader]
    model.train()
    return sum(losses) / len(losses)


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
val_loader = DataLoader(toy.Rows(64), batch_size=32)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

step = 0
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        if step % 7 == 0:
            if dist.get_rank() == 0:
                print(f"step {step}: validation loss {validate(model.module, val_loader):.3f}")
            dist.barrier()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        step += 1

toy.finish(args.out)
