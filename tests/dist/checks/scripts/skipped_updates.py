"""Variants: overflowing | sound, finding_scale."""

import sys

import job
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

variant = sys.argv[1]
job.start()
data = job.Rows(128)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(job.net())
optimizer = job.sgd(model)
scaler = torch.amp.GradScaler("cpu")
step = 0

for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if (variant == "overflowing" and step % 2) or (variant == "finding_scale" and step < 2):
            loss = loss * torch.inf
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        step += 1
