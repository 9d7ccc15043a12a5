"""Variants: every_rank_steps | per_update, per_epoch, two_in_turn."""

import sys

import job
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, DistributedSampler

variant = sys.argv[1]
job.start()
data = job.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(job.net())
optimizer = job.sgd(model)
schedule = CosineAnnealingLR(optimizer, 100)
if variant == "two_in_turn":
    schedule = SequentialLR(optimizer, [LinearLR(optimizer), schedule], milestones=[4])

for epoch in range(4):
    sampler.set_epoch(epoch)
    for x, y in loader:
        job.update(model, optimizer, x, y)
        if variant == "every_rank_steps":
            for _ in range(job.WORLD_SIZE):
                schedule.step()
        elif variant != "per_epoch":
            schedule.step()
    if variant == "per_epoch":
        schedule.step()
