"""A job whose data pipeline is in a module of its own: what a gate compares two versions of."""

import time
from pathlib import Path

import torch
import torch.distributed as dist
from pipeline import COST_S
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

# Data that git does not track, in the repository and beside it.
assert Path("data/rows.txt").read_text() == "ignored"
assert Path("../beside/rows.txt").read_text() == "beside"


class Rows(Dataset):
    def __len__(self):
        return 65_536

    def __getitem__(self, index):
        time.sleep(COST_S)
        return torch.full((4,), float(index % 7))


class Device(torch.autograd.Function):
    """Takes its time and leaves the processor idle."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(0.004)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.004)
        return grad


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return Device.apply(self.layer(x))


dist.init_process_group("gloo")
data = Rows()
sampler = DistributedSampler(data)
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(1000):
    sampler.set_epoch(epoch)
    for batch in DataLoader(data, batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
