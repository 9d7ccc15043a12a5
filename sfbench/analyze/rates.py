"""Samples per second of the whole job at one device count."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from sfbench.analyze.intervals import Array
from sfbench.common.schema import STEP_COLUMNS

WHOLE_BLOCK = 0.5
"""A block with fewer steps than this part of the usual says little by itself."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchRate:
    """What one launch measured on one rung."""

    launch: int
    round: int
    samples: float
    """Of all ranks."""
    seconds: float
    """Wall time of the same steps."""
    steps: int
    blocks: Array
    """samples/s of each block, in order."""
    log_blocks: Array
    """Logarithms of those of the whole blocks: what intervals are made of."""
    log_step_s: Array
    """Logarithms of the same blocks' mean step time, in s."""

    @property
    def samples_per_s(self) -> float:
        """Total samples / total time."""
        return self.samples / self.seconds


def with_stalls(rate: JobRate, stall_s: float) -> JobRate:
    """The rate of steps that take ``stall_s`` longer on average, blocks and all."""
    return JobRate(launches=tuple(_stalled(one, stall_s) for one in rate.launches))


def _stalled(one: LaunchRate, stall_s: float) -> LaunchRate:
    longer = 1 + stall_s * one.steps / one.seconds
    return replace(
        one,
        seconds=one.seconds * longer,
        blocks=one.blocks / longer,
        log_blocks=one.log_blocks - np.log(longer),
        log_step_s=one.log_step_s + np.log(longer),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobRate:
    """A point's launches, by launch."""

    launches: tuple[LaunchRate, ...]

    @property
    def samples_per_s(self) -> float:
        """Total samples / total time: a mean of rates would overweight the fast blocks."""
        return sum(one.samples for one in self.launches) / self.seconds

    @property
    def seconds(self) -> float:
        """Wall time measured."""
        return sum(one.seconds for one in self.launches)

    @property
    def steps(self) -> int:
        """Steps measured."""
        return sum(one.steps for one in self.launches)

    @property
    def log_blocks(self) -> list[Array]:
        """Logarithms of samples/s of whole blocks, by launch."""
        return [one.log_blocks for one in self.launches]

    @property
    def log_step_s(self) -> list[Array]:
        """Logarithms of the same blocks' mean step time, by launch."""
        return [one.log_step_s for one in self.launches]


def job_rate(rows: pd.DataFrame) -> JobRate:
    """Rates from the ordinary steps of one point on one rung (``steps.ordinary`` of ``job_steps``).

    Uses ``launch``, ``round``, ``block``, ``step_s`` (mean over ranks, s), ``samples`` (sum).
    """
    blocks = rows.groupby(["launch", "round", "block"], sort=True, as_index=False).agg(
        samples=("samples", "sum"), seconds=("step_s", "sum"), steps=("step_s", "size")
    )
    launches = [
        _launch_rate(blocks[(blocks["launch"] == launch).to_numpy()])
        for launch in blocks["launch"].unique()
    ]
    return JobRate(launches=tuple(launches))


def _launch_rate(blocks: pd.DataFrame) -> LaunchRate:
    samples = blocks["samples"].to_numpy(dtype=np.float64)
    seconds = blocks["seconds"].to_numpy(dtype=np.float64)
    steps = blocks["steps"].to_numpy(dtype=np.float64)
    whole = steps >= WHOLE_BLOCK * np.median(steps)
    return LaunchRate(
        launch=int(blocks["launch"].iloc[0]),
        round=int(blocks["round"].iloc[0]),
        samples=float(samples.sum()),
        seconds=float(seconds.sum()),
        steps=int(steps.sum()),
        blocks=samples / seconds,
        log_blocks=np.log(samples[whole] / seconds[whole]),
        log_step_s=np.log(seconds[whole] / steps[whole]),
    )


def log_rate(table: Array) -> float | None:
    """Logarithm of a launch's samples/s, straight from its step table; None without train steps.

    For the schedule alone, while a sweep runs: neither warmup nor other work is looked for.
    """
    columns = {name: place for place, name in enumerate(STEP_COLUMNS)}
    train = table[(table[:, columns["measured"]] == 1) & (table[:, columns["rung"]] == 0)]
    seconds = float(train[:, columns["step_s"]].sum())
    samples = float(train[:, columns["samples"]].sum())
    return math.log(samples / seconds) if seconds > 0 and samples > 0 else None
