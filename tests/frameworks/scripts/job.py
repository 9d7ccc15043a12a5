"""What these scripts share: rows, a net of some milliseconds, and a stopwatch.

Arguments of each script: a folder for what it writes, and a variant where it has some.
"""

import time

import torch
from torch import nn
from torch.utils.data import Dataset

FEATURES, CLASSES = 16, 4
FORWARD_S = 0.012


class Rows(Dataset):
    """Labelled feature vectors."""

    def __init__(self, rows=4096):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(rows, FEATURES, generator=generator)
        self.y = torch.randint(0, CLASSES, (rows,), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Net(nn.Module):
    """Stands in for a model on a device: takes its time and leaves the cores idle."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, CLASSES))

    def forward(self, x):
        time.sleep(FORWARD_S)
        return self.layers(x)


class Stopwatch:
    """By hand, as one puts it into a script: says the time and the samples of each step."""

    def tick(self, samples):
        """A step has ended that trained on so many samples."""
        print("stopwatch", time.perf_counter(), samples, flush=True)
