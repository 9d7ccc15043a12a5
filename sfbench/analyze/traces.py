"""What the report draws besides figures: first steps, each rank's own steps, batch sizes, links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sfbench.analyze.intervals import grouped_spread, mean_interval
from sfbench.analyze.phases import steady_rows
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import (
    AllReduceTime,
    BatchTime,
    Beginning,
    Interval,
    LaunchRecord,
    OwnSteps,
    Rung,
)

MOST_STEPS = 120
"""Of a beginning."""
BESIDE = 2
"""So many times the warmup are shown, for what came after it."""
MOST_ROWS, MOST_STRETCHES = 32, 24
"""Of the own steps of all ranks; more are joined."""
SIZES: tuple[Rung, ...] = ("half", "solo", "double")
DIGITS = 4


def beginning(steps: pd.DataFrame) -> Beginning | None:
    """The job's steps of the first launch from its start; ``steps``: warmup labelled."""
    if not len(steps):
        return None
    first = steps[(steps["launch"] == steps["launch"].min()).to_numpy()]
    first = first[(first["warmup"] | (first["rung"] == "train")).to_numpy()]
    by_step = first.groupby("step")
    step_s = by_step["step_s"].median()
    warmup = int(by_step["warmup"].any().sum())
    shown = step_s.to_numpy()[: min(MOST_STEPS, max(BESIDE * warmup, 10))]
    return Beginning(step_s=tuple(map(_rounded, shown)), warmup_steps=min(warmup, len(shown)))


def own_steps(steps: pd.DataFrame) -> OwnSteps | None:
    """Means by rank and stretch of the ``unsynced`` rung; None if it did not run."""
    rows = steady_rows(steps, "unsynced")
    if not len(rows) or int(rows["devices"].iloc[0]) < 2:
        return None
    means = rows.groupby(["launch", "block", "rank"])["step_s"].mean().unstack("rank")
    ranks = int(rows["devices"].iloc[0])
    values = means.reindex(columns=range(ranks)).to_numpy(dtype=np.float64)
    stretches = np.array_split(values, min(MOST_STRETCHES, len(values)))
    groups = np.array_split(np.arange(ranks), min(MOST_ROWS, ranks))
    table = [[_slowest_mean(stretch[:, group]) for stretch in stretches] for group in groups]
    return OwnSteps(
        first_rank=tuple(int(group[0]) for group in groups), step_s=tuple(map(tuple, table))
    )


def batch_times(steps: pd.DataFrame) -> tuple[BatchTime, ...]:
    """Steps of one device at half, whole and double batch; empty if only one size ran."""
    found = [time for rung in SIZES if (time := _batch_time(steady_rows(steps, rung)))]
    return tuple(sorted(found, key=lambda t: t.samples)) if len(found) > 1 else ()


def reduce_times(launches: Sequence[MeasuredLaunch]) -> tuple[AllReduceTime, ...]:
    """Median over launches of each size, smallest first."""
    times: dict[int, list[float]] = {}
    for record in _records(launches):
        for one in record.all_reduce:
            times.setdefault(one.bytes, []).append(one.seconds)
    return tuple(
        AllReduceTime(bytes=size, seconds=_rounded(float(np.median(times[size]))))
        for size in sorted(times)
    )


def peak_memory(launches: Sequence[MeasuredLaunch]) -> dict[int, int]:
    """Most memory of each rank's device in measured train steps; without those that tell none."""
    peaks: dict[int, int] = {}
    for record in _records(launches):
        for load in record.loads:
            most = max((r.peak_bytes for r in load.rungs if r.rung == "train"), default=0)
            if most:
                peaks[load.rank] = max(peaks.get(load.rank, 0), most)
    return peaks


def _records(launches: Sequence[MeasuredLaunch]) -> list[LaunchRecord]:
    return [launch.record for launch in launches if launch.record is not None]


def _batch_time(rows: pd.DataFrame) -> BatchTime | None:
    if not len(rows):
        return None
    means = rows.groupby(["launch", "block"])["step_s"].mean()
    groups = [group.to_numpy(dtype=np.float64) for _, group in means.groupby("launch")]
    interval = mean_interval(float(means.mean()), grouped_spread(groups))
    return BatchTime(
        samples=float(rows["samples"].mean()),
        step_s=Interval(value=interval.value, low=interval.low, high=interval.high),
    )


def _slowest_mean(values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> float | None:
    """Of the ranks in the columns, the mean of the slowest; None if none has a step."""
    means = [column[np.isfinite(column)] for column in values.T]
    known = [float(column.mean()) for column in means if len(column)]
    return _rounded(max(known)) if known else None


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
