"""Times all-reduce on the job's own group at the job's own bucket sizes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from sfbench.common.schema import AllReduceTime
from sfbench.probe.device import Accelerator
from sfbench.probe.probe_group import Control
from sfbench.probe.replaying.memory import is_out_of_memory

DEFAULT_BUCKET_BYTES = 25 * 2**20
"""DDP's bucket_cap_mb."""
ALIKE = 2
"""A bucket that is smaller by no more than this factor tells the same."""
REPEATS = 5
BUDGET_S = 0.4
"""For one size; a slower one is repeated less often, at least once."""
SMALLEST_BYTES = 4
"""A message without content shows the latency."""
TOGETHER = 20
"""On an accelerator so many are launched back to back between two events."""
WARM = 3
FILL = 1.5
"""Before them the device is kept busy for the time that launching them takes, and half as much
again: else a short one would seem to take as long as the host takes to launch the next."""
MOST_FILLING = 200
FILLING_BYTES = 64 << 20
"""With messages of this size at least: short ones are done before the next one is launched."""
SPARE = 0.5
"""Part of what is free beside the job's peak that a buffer may take: NCCL takes some as well."""


def wanted_sizes(buckets: Sequence[int]) -> tuple[int, ...]:
    """Bytes to time for buckets of so many bytes.

    Small ones alone do not tell what fewer and larger ones would cost: of these all gradients
    together are timed as well, or as much of them as DDP puts into one bucket by default.
    """
    joined = min(sum(buckets), DEFAULT_BUCKET_BYTES)
    few = max(buckets, default=0) * ALIKE >= joined
    return tuple(buckets) if few else (*buckets, joined)


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
    memory = accelerator.memory()
    free = min(control.all_gather(memory.beside(memory.peak)))
    fitting = [size for size in wanted if size <= SPARE * free]
    if not fitting:
        return ()
    most = min(int(SPARE * free), max(FILLING_BYTES, fitting[-1]))
    buffer = _made_everywhere(control, accelerator, most, device)
    if buffer is None:
        return ()
    timed = _Timed(control, group, accelerator, buffer)
    return tuple(timed.all_reduce(size) for size in fitting)


def _made_everywhere(
    control: Control, accelerator: Accelerator, size: int, device: torch.device
) -> torch.Tensor | None:
    """A buffer on all ranks, or on none."""
    try:
        buffer: torch.Tensor | None = _buffer(size, device)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        buffer = None
    if all(control.all_gather(buffer is not None)):
        return buffer
    buffer = None
    accelerator.give_back()
    return None


def _on_host(control: Control, group: Any, device: torch.device, size: int) -> AllReduceTime:
    tensor = _buffer(size, device)
    first = _once(group, tensor)
    repeats = max(1, min(REPEATS, int(BUDGET_S / max(first, 1e-6))))
    # Every rank repeats as often as rank 0 decides.
    repeats = control.broadcast([repeats])[0]
    seconds = sorted(_once(group, tensor) for _ in range(repeats))
    return AllReduceTime(bytes=size, seconds=seconds[len(seconds) // 2])


class _Timed:
    """All-reduces by the device's own clock."""

    def __init__(
        self, control: Control, group: Any, accelerator: Accelerator, buffer: torch.Tensor
    ) -> None:
        self._control = control
        self._group = group
        self._accelerator = accelerator
        self._buffer = buffer
        # The first ones connect the ranks.
        self._filling_s = [self._row(buffer, WARM)[0] for _ in range(2)][-1]

    def all_reduce(self, size: int) -> AllReduceTime:
        tensor = self._buffer[: max(1, size // self._buffer.element_size())]
        # The first ones choose an algorithm.
        warm_s, launch_s = self._row(tensor, WARM)
        count = max(1, min(TOGETHER, int(BUDGET_S / max(warm_s, 1e-6))))
        busy_s = FILL * launch_s * count
        filling = math.ceil(busy_s / max(self._filling_s, 1e-6))
        # Every rank does as rank 0 decides.
        count, filling = self._control.broadcast([count, min(MOST_FILLING, filling)])
        mean_s, _ = self._row(tensor, count, filling)
        return AllReduceTime(bytes=size, seconds=max(self._control.all_gather(mean_s)))

    def _row(self, tensor: torch.Tensor, count: int, filling: int = 1) -> tuple[float, float]:
        """Mean seconds of so many in a row, and what the host takes to launch one."""
        self._accelerator.synchronize()
        # Ranks come here at different times, and the first one would wait for the last.
        for _ in range(max(1, filling)):
            dist.all_reduce(self._buffer, group=self._group)
        before, began = self._accelerator.event(), time.perf_counter()
        for _ in range(count):
            dist.all_reduce(tensor, group=self._group)
        launched, after = time.perf_counter(), self._accelerator.event()
        self._accelerator.synchronize()
        return float(before.elapsed_time(after)) / 1e3 / count, (launched - began) / count


def _buffer(size: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(max(1, size // 4), dtype=torch.float32, device=device)


def _once(group: Any, tensor: torch.Tensor) -> float:
    began = time.perf_counter()
    dist.all_reduce(tensor, group=group)
    return time.perf_counter() - began
