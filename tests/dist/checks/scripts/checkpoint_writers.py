"""Variants: one_path, one_log | own_names, first_rank, sharded_folder, in_turn, temporary."""

import logging
import sys
import tempfile
from pathlib import Path

import job
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

variant, out = sys.argv[1], Path(sys.argv[2])
job.start()
log = logging.getLogger("train")
if variant == "one_log":
    log.addHandler(logging.FileHandler(out / "train.log"))
elif variant == "own_names":
    log.addHandler(logging.FileHandler(out / f"train-{job.RANK}.log"))
if variant == "temporary":
    for make in (
        tempfile.NamedTemporaryFile,
        tempfile.TemporaryFile,
        tempfile.SpooledTemporaryFile,
    ):
        with make() as scratch:
            scratch.write(b"of this rank alone")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "scratch").write_text("of this rank alone")
log.warning("rank %s begins", job.RANK)
data = job.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(job.net())
optimizer = job.sgd(model)

for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        job.update(model, optimizer, x, y)
    state = model.module.state_dict()
    if variant == "one_path" or (variant == "first_rank" and job.RANK == 0):
        torch.save(state, out / "last.pt")
    elif variant == "sharded_folder":
        folder = out / f"epoch-{epoch}"
        folder.mkdir(exist_ok=True)
        torch.save(optimizer.state_dict(), folder / f"shard-{job.RANK}.pt")
    elif variant == "in_turn":
        for turn in range(job.WORLD_SIZE):
            if turn == job.RANK:
                with (out / "table.csv").open("a") as table:
                    table.write(f"{epoch},{job.RANK}\n")
            dist.barrier()
