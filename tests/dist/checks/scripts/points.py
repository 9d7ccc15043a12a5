"""Variants, which differ in what they do with the number of ranks: divided, threads | plain."""

import sys

import job
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

variant = sys.argv[1]
job.start()
if variant == "threads":
    torch.set_num_threads(2 // job.WORLD_SIZE)
data = job.Rows(128)
sampler = DistributedSampler(data)
batch_size = 8 // job.WORLD_SIZE if variant == "divided" else 8
loader = DataLoader(data, batch_size=batch_size, sampler=sampler)
model = DDP(job.net())
optimizer = job.sgd(model)

for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        job.update(model, optimizer, x, y)
