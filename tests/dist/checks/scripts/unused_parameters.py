"""Variants: none_unused | some_unused, not_asked."""

import sys

import job
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

variant = sys.argv[1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = job.net()
        self.spare = nn.Linear(10, 10)

    def forward(self, x):
        out = self.net(x)
        return out if variant == "some_unused" else self.spare(out)


job.start()
data = job.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(Net(), find_unused_parameters=variant != "not_asked")
optimizer = job.sgd(model)

for epoch in range(4):
    sampler.set_epoch(epoch)
    for x, y in loader:
        job.update(model, optimizer, x, y)
