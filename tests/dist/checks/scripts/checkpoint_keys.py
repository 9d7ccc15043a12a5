"""Variants: wrapped, nested, compiled, whole | bare, own_name, averaged."""

import sys
from pathlib import Path

import job
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, DistributedSampler

variant, out = sys.argv[1], Path(sys.argv[2])


class Named(nn.Module):
    """A model that calls a part of itself ``module``."""

    def __init__(self):
        super().__init__()
        self.module = job.net()

    def forward(self, x):
        return self.module(x)


def state():
    if variant == "wrapped":
        return model.state_dict()
    if variant == "nested":
        return {"epoch": epoch, "state": {"model": model.state_dict()}}
    if variant == "averaged":
        return AveragedModel(model.module).state_dict()
    if variant == "whole":
        return {"model": model}
    return {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}


job.start()
net = Named() if variant == "own_name" else job.net()
if variant == "compiled":
    net = torch.compile(net, backend="eager")
model = DDP(net)
optimizer = job.sgd(model)
data = job.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)

for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        job.update(model, optimizer, x, y)
if job.RANK == 0:
    torch.save(state(), out / "last.pt")
