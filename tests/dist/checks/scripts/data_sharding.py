"""Variants: no_sampler, same_seed, augmented, random_inside, whole_stream, own_batches |
own_shard, shared_stream, padded, synthetic, model_parallel, halves, own_batches_apart, endless,
repeated."""

import itertools
import random
import sys

import job
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, Sampler

variant = sys.argv[1]


class Augmented(job.Rows):
    """Rows with noise, as cropped and flipped images are."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + 0.1 * torch.randn(job.FEATURES), y


class RandomInside(job.Rows):
    """Picks a row by itself, whatever the sampler says."""

    def __init__(self):
        super().__init__()
        self.random = random.Random(0)

    def __getitem__(self, index):
        return super().__getitem__(self.random.randrange(len(self)))


class Endless(Sampler):
    """Batches of one epoch after the other, in one pass: what keeps workers busy."""

    def __init__(self, inner):
        self.inner, self.epochs = inner, itertools.count()

    def __iter__(self):
        for epoch in self.epochs:
            self.inner.set_epoch(epoch)
            yield from BatchSampler(self.inner, 4, True)

    def __len__(self):
        return len(self.inner) // 4


class Repeated(DistributedSampler):
    """Each sample three times, to one rank after the other, as repeated augmentation wants it."""

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(len(self.dataset), generator=generator).repeat_interleave(3)
        return iter(order[self.rank :: self.num_replicas][: self.num_samples].tolist())


class Synthetic(job.Rows):
    """Makes a new sample at each access."""

    def __getitem__(self, index):
        return torch.randn(job.FEATURES), torch.randint(0, 10, ())


class Stream(IterableDataset):
    """Rows in order: all of them, or the share of a rank."""

    def __init__(self, first, step):
        self.rows = job.Rows()
        self.first, self.step = first, step

    def __iter__(self):
        for index in range(self.first, len(self.rows), self.step):
            yield self.rows[index]


class Summed(torch.autograd.Function):
    """Adds up what the ranks' parts of a layer give."""

    @staticmethod
    def forward(ctx, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Halves(nn.Module):
    """A tensor-parallel model made by hand: each rank holds half of the hidden units."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(job.RANK)
        self.first = nn.Linear(job.FEATURES, 8)
        self.second = nn.Linear(8, 10, bias=False)

    def forward(self, x):
        return Summed.apply(self.second(torch.relu(self.first(x))))


def loader_of():
    if variant == "whole_stream":
        return DataLoader(Stream(0, 1), batch_size=4)
    if variant == "shared_stream":
        return DataLoader(Stream(job.RANK, job.WORLD_SIZE), batch_size=4)
    if variant == "endless":
        data = job.Rows()
        return DataLoader(data, batch_sampler=Endless(DistributedSampler(data)))
    if variant == "repeated":
        data = Augmented()
        return DataLoader(data, batch_size=4, sampler=Repeated(data))
    if variant in ("random_inside", "padded"):
        data = RandomInside() if variant == "random_inside" else job.Rows(63)
        return DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=3))
    if variant == "own_shard":
        data = job.Rows(32, seed=job.RANK)
    else:
        data = {"augmented": Augmented, "synthetic": Synthetic}.get(variant, job.Rows)()
    return DataLoader(data, batch_size=4, shuffle=variant not in ("model_parallel", "halves"))


def make(model):
    if variant == "halves":
        return Halves()
    if variant != "model_parallel":
        return DDP(model)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)


job.start()
model = make(job.net())
optimizer = job.sgd(model)
if variant.startswith("own_batches"):
    rows = job.Rows()
    picked = (torch.randint(64, (4,)) for _ in range(16))
    loader = ((rows.x[i], rows.y[i]) for _ in range(4) for i in picked)
else:
    loader = loader_of()
if variant not in ("same_seed", "own_batches"):
    torch.manual_seed(job.RANK)

for epoch in range(4):
    if isinstance(getattr(loader, "sampler", None), DistributedSampler):
        loader.sampler.set_epoch(epoch)
    for x, y in itertools.islice(loader, 200):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
