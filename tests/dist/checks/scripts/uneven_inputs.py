"""Variants: returns, barrier, reduce, validates, later | dropped, joined, least, cycled_even."""

import sys
from itertools import islice

import job
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset

variant = sys.argv[1]
job.start()
data = job.Rows(46)
if variant == "dropped":
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=4, sampler=sampler, drop_last=True)
else:
    # Rank 0 has 24 rows, rank 1 the other 22 less two: 6 batches against 5.
    mine = range(24) if job.RANK == 0 else range(24, 44)
    loader = DataLoader(Subset(data, mine), batch_size=4, shuffle=True)
model = DDP(job.net())
optimizer = job.sgd(model)
loss = torch.zeros(())
epochs = 1 if variant in ("returns", "barrier", "reduce") else 3


def steps():
    """As many as every rank has."""
    count = torch.tensor(len(loader))
    dist.all_reduce(count, op=dist.ReduceOp.MIN)
    return int(count)


limit = steps() if variant == "least" else None
for epoch in range(epochs):
    if variant == "dropped":
        sampler.set_epoch(epoch)
    with Join([model]) if variant == "joined" else torch.enable_grad():
        for x, y in islice(loader, limit):
            job.update(model, optimizer, x, y)
    if variant == "validates":
        with torch.no_grad():
            right = sum((model.module(x).argmax(1) == y).sum() for x, y in DataLoader(data, 8))
        dist.all_reduce(right)
        print("right:", int(right))

if variant == "barrier":
    dist.barrier()
elif variant == "reduce":
    dist.all_reduce(loss)
    print("loss:", float(loss))
