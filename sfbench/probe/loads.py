"""What the training thread did on each rung: ran, waited for a core, or slept."""

from __future__ import annotations

import time
from statistics import fmean

from sfbench.common.schema import RUNGS, RankLoad, RungLoad
from sfbench.probe.clock import Clock
from sfbench.probe.hooks.fetching import FetchCost, run_delay_s


class LoadMeter:
    """Adds up wall, CPU and run-queue time per rung, and device memory; at block borders only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: tuple[float, float, float] | None = None
        self._totals: dict[int, list[float]] = {}
        self._peaks: dict[int, int] = {}
        self._clocks: dict[int, list[float]] = {}

    def begin(self) -> None:
        """A block starts."""
        accelerator = self._clock.accelerator
        if accelerator is not None:
            accelerator.reset_peak()
        self._began = (time.perf_counter(), time.thread_time(), run_delay_s())

    def end(self, rung: int, steps: int) -> None:
        """A block of ``steps`` steps on ``RUNGS[rung]`` has ended."""
        if self._began is None:
            return
        wall, cpu, delay = self._began
        self._began = None
        total = self._totals.setdefault(rung, [0.0, 0.0, 0.0, 0.0])
        total[0] += steps
        total[1] += time.perf_counter() - wall
        total[2] += time.thread_time() - cpu
        total[3] += run_delay_s() - delay
        accelerator = self._clock.accelerator
        if accelerator is not None:
            peak = accelerator.peak_bytes()
            self._peaks[rung] = max(self._peaks.get(rung, 0), peak)
            # Before the device is waited for: it still works on the last steps.
            clock_hz = accelerator.clock_hz()
            if clock_hz > 0:
                self._clocks.setdefault(rung, []).append(clock_hz)

    def peak_bytes(self, rung: int) -> int:
        """Most device memory that was allocated on ``RUNGS[rung]``; 0: not known."""
        return self._peaks.get(rung, 0)

    def cpu_above_cached_s(self) -> float | None:
        """CPU seconds per step of ``train`` above ``cached``; None if one did not run."""
        train, cached = self._totals.get(0), self._totals.get(RUNGS.index("cached"))
        if not train or not cached or not train[0] or not cached[0]:
            return None
        return train[2] / train[0] - cached[2] / cached[0]

    def load(self, rank: int, cost: FetchCost | None) -> RankLoad:
        """All of it, with what fetching cost if that is known."""
        rungs = tuple(
            RungLoad(
                rung=RUNGS[i],
                steps=int(t[0]),
                wall_s=t[1],
                cpu_s=t[2],
                delay_s=t[3],
                peak_bytes=self._peaks.get(i, 0),
                clock_hz=fmean(self._clocks[i]) if i in self._clocks else 0.0,
            )
            for i, t in sorted(self._totals.items())
        )
        if cost is None:
            return RankLoad(rank=rank, rungs=rungs)
        return RankLoad(
            rank=rank,
            fetch_batches=cost.batches,
            fetch_s=cost.wall_s / cost.batches,
            fetch_cpu_s=cost.cpu_s / cost.batches,
            fetch_delay_s=cost.delay_s / cost.batches,
            rungs=rungs,
        )
