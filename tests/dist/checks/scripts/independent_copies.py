"""Variants: no_group, not_wrapped, around, second_model, apart.

Those that are right: flattened, sharded, joined, diverged.
"""

import math
import sys

import job
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.join import Join
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

variant = sys.argv[1]


def average(model):
    """Own gradient averaging: one flat all-reduce."""
    gradients = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def make(model):
    if variant == "sharded":
        return fully_shard(model)
    return DDP(model) if variant in ("around", "second_model", "joined", "diverged") else model


if variant != "no_group":
    job.start()
if variant == "apart":
    torch.manual_seed(job.RANK)
data = job.Rows()
sampler = DistributedSampler(data, num_replicas=job.WORLD_SIZE, rank=job.RANK)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = make(job.net())
optimizer = job.sgd(model)
head = torch.nn.Linear(10, 10)
head_optimizer = job.sgd(head)

for epoch in range(4):
    sampler.set_epoch(epoch)
    with Join([model], enable=True) if variant == "joined" else torch.enable_grad():
        for x, y in loader:
            optimizer.zero_grad()
            head_optimizer.zero_grad()
            logits = (model.module if variant == "around" else model)(x)
            if variant == "second_model":
                logits = head(logits)
            loss = F.cross_entropy(logits, y)
            (loss * math.inf if variant == "diverged" else loss).backward()
            if variant in ("flattened", "apart"):
                average(model)
            optimizer.step()
            if variant == "second_model":
                head_optimizer.step()
