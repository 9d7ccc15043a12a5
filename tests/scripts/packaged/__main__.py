"""Trains with what its package holds."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from .parts import Net, Numbers

# All of it as under python -m.
assert __name__ == "__main__"
assert __package__ == "packaged"
assert __spec__.name == "packaged.__main__"
assert sys.argv == [__file__, "--epochs", "500"]
assert sys.path[0] == str(Path(__file__).parents[1])

dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
data = Numbers()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=16, sampler=sampler)
for epoch in range(int(sys.argv[2])):
    sampler.set_epoch(epoch)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
dist.destroy_process_group()
