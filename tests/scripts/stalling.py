"""A DDP script that stops between its steps: ``stalling.py KIND STEPS``, 0 steps for endless.

Its layers take a set time by sample and leave the CPU idle. Prints a stopwatch's figures: seconds
per step with all that the script does, and of them what its evaluation and its checkpoints take.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

KIND, STEPS = sys.argv[1], int(sys.argv[2])
SAMPLE_S = 0.0008
BATCH = 32
SAMPLES = 40 * BATCH if KIND == "epoch" else 64_000


class Busy(torch.autograd.Function):
    """Takes a third of its time forward and the rest backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        time.sleep(seconds / 3)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(2 * ctx.seconds / 3)
        return grad, None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Busy.apply(self.layer(x), SAMPLE_S * len(x))


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), index / SAMPLES)


def draw() -> None:
    time.sleep(0.25)


def save(state: dict[str, torch.Tensor], folder: str) -> None:
    torch.save(state, Path(folder) / "checkpoint.pt")


def evaluate(net: DistributedDataParallel, *, own_loader: bool) -> None:
    held_out = torch.rand(1920, 16)
    net.eval()
    with torch.no_grad():
        for batch in DataLoader(held_out, BATCH) if own_loader else held_out.split(BATCH):
            net.module(batch)
    net.train()


def work_between_steps(net: DistributedDataParallel, n: int, folder: str) -> float:
    """What comes every so many steps, on rank 0; seconds of it outside of the training loop."""
    began = time.perf_counter()
    if KIND in ("stop", "barrier") and n % 10 == 0:
        draw()
    if KIND in ("none", "stop", "epoch", "bursts", "before-update", "barrier"):
        return 0.0
    if KIND in ("eval", "eval-loader") and n % 25 == 0:
        evaluate(net, own_loader=KIND == "eval-loader")
    elif KIND == "save" and n % 20 == 0:
        save({"weights": torch.zeros(25_000_000)}, folder)
    return time.perf_counter() - began


def update(optimizer: torch.optim.Optimizer, n: int) -> None:
    if KIND == "before-update" and dist.get_rank() == 0 and n % 10 == 9:
        draw()
    optimizer.step()


def on_all_ranks(chance: random.Random) -> None:
    """What comes after each step."""
    if KIND == "barrier":
        dist.barrier()
    elif KIND == "bursts" and chance.random() < 0.02:
        time.sleep(0.05 * chance.random())


def train(folder: str) -> None:
    rank = dist.get_rank()
    net = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    sampler: DistributedSampler[torch.Tensor] = DistributedSampler(Rows(), drop_last=True)
    loader = DataLoader(Rows(), BATCH, sampler=sampler, drop_last=True)
    chance = random.Random(os.getpid())
    n, epoch, began, outside_s = 0, 0, 0.0, 0.0
    while not STEPS or n < STEPS:
        sampler.set_epoch(epoch)
        epoch += 1
        for batch in loader:
            if n == 40:
                began, outside_s = time.perf_counter(), 0.0
            loss = net(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            update(optimizer, n)
            n += 1
            if rank == 0:
                outside_s += work_between_steps(net, n, folder)
            on_all_ranks(chance)
            if STEPS and n >= STEPS:
                break
        if KIND == "epoch":
            time.sleep(0.4)
    took_s = time.perf_counter() - began
    if rank == 0:
        print(f"step_s {(took_s - outside_s) / (n - 40)} outside_s {outside_s / (n - 40)}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    with TemporaryDirectory() as scratch:
        train(scratch)
    dist.destroy_process_group()
