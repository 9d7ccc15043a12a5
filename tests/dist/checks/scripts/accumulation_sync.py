"""Variants: every_time, backward_only | no_sync, by_flag, two_views."""

import sys
from contextlib import nullcontext

import job
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

MICRO_STEPS = 4
variant = sys.argv[1]
job.start()
data = job.Rows(256)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(job.net())
optimizer = job.sgd(model)


def loss_of(x, y):
    if variant == "two_views":
        return F.cross_entropy(model(x), y) + F.cross_entropy(model(-x), y)
    return F.cross_entropy(model(x), y) / MICRO_STEPS


for epoch in range(4):
    sampler.set_epoch(epoch)
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % MICRO_STEPS == 0 or variant == "two_views"
        if variant == "by_flag":
            model.require_backward_grad_sync = last
        unsynced = variant in ("no_sync", "backward_only") and not last
        with model.no_sync() if unsynced and variant == "no_sync" else nullcontext():
            loss = loss_of(x, y)
            with model.no_sync() if unsynced else nullcontext():
                loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
