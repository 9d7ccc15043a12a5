"""Variants: forgotten, constant, cycled | set_epoch, batch_sampler, own_shuffle, one_epoch,
looked_at, in_order."""

import sys

import job
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Sampler

variant = sys.argv[1]


class Buckets(Sampler):
    """A batch sampler that has to be told the epoch."""

    def __init__(self, rows):
        self.rows, self.epoch = rows, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(self.rows, generator=generator).tolist()
        mine = order[job.RANK :: job.WORLD_SIZE]
        yield from (mine[i : i + 4] for i in range(0, len(mine), 4))

    def __len__(self):
        return self.rows // (4 * job.WORLD_SIZE)


class OwnShuffle(Sampler):
    """Draws another order each time by itself."""

    def __init__(self, rows):
        self.rows, self.passes = rows, 0

    def __iter__(self):
        self.passes += 1
        generator = torch.Generator().manual_seed(self.passes)
        order = torch.randperm(self.rows, generator=generator).tolist()
        return iter(order[job.RANK :: job.WORLD_SIZE])

    def __len__(self):
        return self.rows // job.WORLD_SIZE


def cycle(loader):
    while True:
        yield from loader


job.start()
data = job.Rows()
model = DDP(job.net())
optimizer = job.sgd(model)
if variant == "batch_sampler":
    sampler = Buckets(len(data))
    loader = DataLoader(data, batch_sampler=sampler)
else:
    own = variant == "own_shuffle"
    sampler = (
        OwnShuffle(len(data)) if own else DistributedSampler(data, shuffle=variant != "in_order")
    )
    loader = DataLoader(data, batch_size=4, sampler=sampler)
if variant == "looked_at":
    x, y = next(iter(loader))
    print("a batch:", tuple(x.shape), y.tolist())

if variant == "cycled":
    batches = cycle(loader)
    for _ in range(60):
        x, y = next(batches)
        job.update(model, optimizer, x, y)
else:
    for epoch in range(1 if variant == "one_epoch" else 4):
        if variant in ("set_epoch", "batch_sampler", "looked_at"):
            sampler.set_epoch(epoch)
        elif variant == "constant":
            sampler.set_epoch(0)
        for x, y in loader:
            job.update(model, optimizer, x, y)
