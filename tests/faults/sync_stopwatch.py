"""What synchronising gradients costs ``tests/scripts/stalling.py``, by a stopwatch alone.

``torchrun --standalone --nproc-per-node=2 tests/faults/sync_stopwatch.py bursts 1000``: blocks of
steps with and without ``no_sync`` in turn. What a step takes longer than the slowest rank does
by itself is communication, however small the gradient.
"""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from stalling import BATCH, STEPS, Net, on_all_ranks

BLOCK = 10
SKIPPED = 2
"""Steps of each block that find the ranks apart."""
WARMUP_BLOCKS = 6


def step_times() -> list[float]:
    """Seconds of each step of this rank."""
    net = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    batch, chance, times = torch.rand(BATCH, 16), random.Random(os.getpid()), []
    for n in range(STEPS):
        if n % BLOCK == 0:
            dist.barrier()
        began = time.perf_counter()
        with nullcontext() if synced(n // BLOCK) else net.no_sync():
            optimizer.zero_grad()
            net(batch).square().mean().backward()
        optimizer.step()
        on_all_ranks(chance)
        times.append(time.perf_counter() - began)
    return times


def synced(block: int) -> bool:
    """Whether a block's gradients are synchronised."""
    return block % 2 == 0


def report(times: torch.Tensor) -> str:
    """``times``: (ranks, steps)."""
    blocks = times.numpy().reshape(len(times), -1, BLOCK)[:, :, SKIPPED:]
    together = blocks.mean(axis=(0, 2))[WARMUP_BLOCKS::2]
    apart = blocks.max(axis=0).mean(axis=1)[WARMUP_BLOCKS + 1 :: 2]
    extra = together - apart
    half = 2 * extra.std(ddof=1) / np.sqrt(len(extra))
    return (
        f"synced {1e3 * together.mean():.2f} ms, slowest rank by itself {1e3 * apart.mean():.2f}: "
        f"communication {1e3 * extra.mean():.2f} ± {1e3 * half:.2f} ms, "
        f"{extra.mean() / together.mean():.1%} of the step"
    )


if __name__ == "__main__":
    dist.init_process_group("gloo")
    mine = torch.tensor(step_times(), dtype=torch.float64)
    everybody = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, mine)
    if dist.get_rank() == 0:
        print(report(torch.stack(everybody)))
    dist.destroy_process_group()
