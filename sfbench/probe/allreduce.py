"""Times all-reduce on the job's own group at the job's own bucket sizes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from sfbench.probe.control import Control
from sfbench.schema import AllReduceTime

REPEATS = 5
BUDGET_S = 0.4
"""For one size; a slower one is repeated less often, at least once."""
SMALLEST_BYTES = 4
"""A message without content shows the latency."""


def time_all_reduce(
    control: Control, group: Any, device: torch.device, sizes: Sequence[int]
) -> tuple[AllReduceTime, ...]:
    """Median seconds of a float32 all-reduce for each size in bytes. All ranks call it alike."""
    times = []
    for size in sorted({SMALLEST_BYTES, *sizes}):
        tensor = torch.zeros(max(1, size // 4), dtype=torch.float32, device=device)
        first = _once(group, tensor)
        repeats = max(1, min(REPEATS, int(BUDGET_S / max(first, 1e-6))))
        # Every rank repeats as often as rank 0 decides.
        repeats = control.broadcast([repeats])[0]
        seconds = sorted(_once(group, tensor) for _ in range(repeats))
        times.append(AllReduceTime(bytes=size, seconds=seconds[len(seconds) // 2]))
    return tuple(times)


def _once(group: Any, tensor: torch.Tensor) -> float:
    began = time.perf_counter()
    dist.all_reduce(tensor, group=group)
    if tensor.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began
