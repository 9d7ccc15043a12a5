"""The small job that these scripts share: data, model, process group."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
FEATURES = 8


class Rows(Dataset):
    """Labelled feature vectors."""

    def __init__(self, rows=64, seed=1):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(rows, FEATURES, generator=generator)
        self.y = torch.randint(0, 10, (rows,), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def start():
    dist.init_process_group("gloo")
    torch.manual_seed(0)


def net():
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 10))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05)


def update(model, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
