"""Times all-reduce on the job's own group at the job's own bucket sizes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from sfbench.common.schema import AllReduceTime
from sfbench.probe.device import Accelerator
from sfbench.probe.probe_group import Control

REPEATS = 5
BUDGET_S = 0.4
"""For one size; a slower one is repeated less often, at least once."""
SMALLEST_BYTES = 4
"""A message without content shows the latency."""
TOGETHER = 20
"""On an accelerator so many are launched back to back between two events: what the host takes to
launch one is then hidden behind the one before."""
WARM = 3


def time_all_reduce(
    control: Control,
    group: Any,
    device: torch.device,
    sizes: Sequence[int],
    accelerator: Accelerator | None = None,
) -> tuple[AllReduceTime, ...]:
    """Seconds of a float32 all-reduce for each size in bytes. All ranks call it alike.

    On the host the median of several. On an accelerator the mean of several in a row by the
    device's own clock, the largest over the ranks; sizes whose buffer does not fit on every rank
    are left out.
    """
    wanted = sorted({SMALLEST_BYTES, *sizes})
    if accelerator is None:
        return tuple(_on_host(control, group, device, size) for size in wanted)
    free = min(control.all_gather(accelerator.memory().beside_the_peak))
    fitting = [size for size in wanted if size <= free // 2]
    return tuple(_on_device(control, group, accelerator, _buffer(size, device)) for size in fitting)


def _on_host(control: Control, group: Any, device: torch.device, size: int) -> AllReduceTime:
    tensor = _buffer(size, device)
    first = _once(group, tensor)
    repeats = max(1, min(REPEATS, int(BUDGET_S / max(first, 1e-6))))
    # Every rank repeats as often as rank 0 decides.
    repeats = control.broadcast([repeats])[0]
    seconds = sorted(_once(group, tensor) for _ in range(repeats))
    return AllReduceTime(bytes=size, seconds=seconds[len(seconds) // 2])


def _on_device(
    control: Control, group: Any, accelerator: Accelerator, tensor: torch.Tensor
) -> AllReduceTime:
    # The first ones connect the ranks and choose an algorithm.
    warm = _row(group, tensor, accelerator, WARM)
    count = max(1, min(TOGETHER, int(BUDGET_S / max(warm, 1e-6))))
    count = control.broadcast([count])[0]
    mean_s = _row(group, tensor, accelerator, count)
    size = tensor.numel() * tensor.element_size()
    return AllReduceTime(bytes=size, seconds=max(control.all_gather(mean_s)))


def _row(group: Any, tensor: torch.Tensor, accelerator: Accelerator, count: int) -> float:
    """Mean seconds of so many in a row."""
    accelerator.synchronize()
    # Ranks come here at different times, and the first one would wait for the last.
    dist.all_reduce(tensor, group=group)
    before = accelerator.event()
    for _ in range(count):
        dist.all_reduce(tensor, group=group)
    after = accelerator.event()
    accelerator.synchronize()
    return float(before.elapsed_time(after)) / 1e3 / count


def _buffer(size: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(max(1, size // 4), dtype=torch.float32, device=device)


def _once(group: Any, tensor: torch.Tensor) -> float:
    began = time.perf_counter()
    dist.all_reduce(tensor, group=group)
    return time.perf_counter() - began
