"""Variants: unseeded | seeded, shards."""

import sys

import job
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, random_split

variant = sys.argv[1]
dist.init_process_group("gloo")
data = job.Rows(256)
if variant == "unseeded":
    train, held_out = random_split(data, [0.75, 0.25])
elif variant == "seeded":
    generator = torch.Generator().manual_seed(5)
    train, held_out = random_split(data, [0.75, 0.25], generator=generator)
else:
    train = Subset(data, range(job.RANK, 192, job.WORLD_SIZE))
    held_out = Subset(data, range(192 + job.RANK, 256, job.WORLD_SIZE))
torch.manual_seed(0)
sampler = None if variant == "shards" else DistributedSampler(train)
loader = DataLoader(train, batch_size=4, sampler=sampler, shuffle=sampler is None)
model = DDP(job.net())
optimizer = job.sgd(model)

for epoch in range(2):
    if sampler is not None:
        sampler.set_epoch(epoch)
    for x, y in loader:
        job.update(model, optimizer, x, y)
    with torch.no_grad():
        correct = sum(int((model(x).argmax(1) == y).sum()) for x, y in DataLoader(held_out, 8))
        print("right:", correct)
