# shape: one model is trained, then a larger one on larger batches
# samples: 8
# fetches: 1
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(width, batch, steps):
    net = DDP(torch.nn.Linear(64, width))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(4096, 64))
    loader = DataLoader(data, batch_size=batch, sampler=DistributedSampler(data), drop_last=True)
    done = 0
    while done < steps:
        loader.sampler.set_epoch(done)
        for (x,) in loader:
            optimizer.zero_grad()
            net(x).square().mean().backward()
            time.sleep(0.004)
            optimizer.step()
            done += 1
            if done == steps:
                break


dist.init_process_group("gloo")
train(64, 8, 300)
if "leaves" in sys.argv:
    dist.destroy_process_group()
    dist.init_process_group("gloo")
train(256, 32, 100_000)
