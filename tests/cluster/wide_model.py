"""A model of 4 MB whose forward waits: all that several hosts add is the link."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Waits(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1000, 1000)

    def forward(self, x):
        time.sleep(0.01 * len(x))
        return self.layer(x)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(64, 1000)), batch_size=4)
    model = DistributedDataParallel(Waits())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for _ in range(100_000):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
