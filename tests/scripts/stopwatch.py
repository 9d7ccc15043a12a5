# shape: for over a DataLoader, with a stopwatch written by hand
# samples: 16
# fetches: 1
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
import toy
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)
model = DDP(nn.Sequential(nn.Linear(toy.FEATURES, 1024), nn.Linear(1024, 1024), toy.net(1024)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

name = f"times-{os.environ['WORLD_SIZE']}-{os.environ['RANK']}.f64"
with (args.out / name).open("wb", buffering=0) as times:
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            times.write(np.float64(time.perf_counter()).tobytes())

toy.finish(args.out)
