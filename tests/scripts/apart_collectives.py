# shape: collectives by all their names, and messages between two ranks, in each step
# samples: 8
# fetches: 1
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fcol
import torch.nn.functional as F
import toy
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

# Newer torch has a name of its own for it; on NCCL its SyncBatchNorm uses that one.
gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


def exchange(loss):
    """The losses of all ranks, by many ways."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = loss.detach().reshape(1)
    losses = torch.empty(size)
    gather(losses, mine)
    c10d.all_reduce(mine.clone())
    dist.group.WORLD.allreduce([mine.clone()]).wait()
    mean = fcol.all_reduce(mine, "avg", dist.group.WORLD)
    losses += fcol.all_gather_tensor(mean, 0, dist.group.WORLD)
    right, left = (rank + 1) % size, (rank - 1) % size
    given = torch.empty(1)
    if size > 1:
        sent = dist.isend(mine, right)
        dist.recv(given, left)
        sent.wait()
        both = [dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, given, left)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
    return losses, given


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        exchange(loss)
        loss.backward()
        optimizer.step()

toy.finish(args.out)
