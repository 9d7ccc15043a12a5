# shape: checkpoint saving inside the loop on rank 0
# samples: 8
# fetches: 1
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def save(path):
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, path)
    print(f"saved {path}")


step = 0
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        step += 1
        if step % 10 == 0 and dist.get_rank() == 0:
            save(args.out / f"checkpoint-{step}.pt")

torch.save(model.module.state_dict(), args.out / f"final-{dist.get_rank()}.pt")
toy.finish(args.out)
