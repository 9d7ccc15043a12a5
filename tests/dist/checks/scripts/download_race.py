"""Variants: all_make, no_barrier, half_read | once, guarded, turned_guard, saved."""

import sys
import time
from pathlib import Path

import job
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from sfbench.data import once_per_node

variant, out = sys.argv[1], Path(sys.argv[2])
path = out / "rows.npy"


def make():
    """Stands for a download."""
    rows = np.random.default_rng(0).normal(size=(64, job.FEATURES + 1)).astype(np.float32)
    with path.open("wb") as file:
        time.sleep(0.3)
        np.save(file, rows)


job.start()
missing = not path.exists()
dist.barrier()
if variant == "all_make":
    if missing:
        make()
    dist.barrier()
elif variant == "no_barrier":
    if job.RANK == 0:
        make()
elif variant == "half_read":
    if job.RANK == 0:
        make()
    while not path.exists():
        time.sleep(0.01)
    while path.stat().st_size < 128:
        path.read_bytes()
elif variant == "once":
    once_per_node(make)()
elif variant == "guarded":
    if job.RANK == 0:
        make()
    dist.barrier()
elif variant == "saved":
    if job.RANK == 0:
        make()
        torch.save(torch.from_numpy(np.load(path)), out / "rows.pt")
    dist.barrier()
    print("rows:", len(torch.load(out / "rows.pt")))
elif variant == "turned_guard":
    if job.RANK != 0:
        dist.barrier()
    if not path.exists():
        make()
    if job.RANK == 0:
        dist.barrier()
rows = torch.from_numpy(np.load(path))
data = TensorDataset(rows[:, 1:], rows[:, 0].abs().long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(job.net())
optimizer = job.sgd(model)

for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        job.update(model, optimizer, x, y)
