"""The tiny job that these scripts share: arguments, data, model, process group."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset

FEATURES = 16
CLASSES = 4


def parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path())
    return parser


class Rows(Dataset):
    """Labelled feature vectors, made when asked for."""

    def __init__(self, rows=512):
        self.x = torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(1))
        self.y = (self.x.sum(1) > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def setup():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())


def net(inputs=FEATURES, outputs=CLASSES):
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs))


def finish(out):
    """The end of the job, after the loop: what a measured run must not come to."""
    (out / f"finished-{os.environ['RANK']}").touch()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
