"""Step time over the batch size, T(b) = A + C b, from one device's solo steps.

A is what a step costs whatever the batch, C what each sample adds. A device that is given b samples
works b / (b + A / C) of its time on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from sfbench.analyze.intervals import Array, grouped_spread, mean_interval
from sfbench.analyze.phases import steady_rows
from sfbench.common.schema import Interval, Rung

CURVE: tuple[Rung, ...] = ("half", "solo", "double")
MIN_REPEATS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCurve:
    """The fitted line."""

    batch: float
    """Samples per step that the job has."""
    fixed_s: Interval
    """A: seconds per step."""
    sample_s: Interval
    """C: seconds per sample."""
    fixed_share: Interval
    """A / T(batch), a ratio."""
    sizes: tuple[float, ...]
    """Samples per step that were measured, ascending."""
    misfit: float
    """Largest distance of a measured size's mean from the line, as a ratio of its time."""

    def step_s(self, batch: float) -> float:
        """T(b) in seconds."""
        return self.fixed_s.value + self.sample_s.value * batch

    def samples_per_s(self, batch: float) -> float:
        """b / T(b)."""
        return batch / self.step_s(batch)


def batch_curve(steps: pd.DataFrame) -> BatchCurve | None:
    """Fit the curve of the point at 1 device; None if fewer than two sizes were measured.

    ``steps``: its step frame, warmup labelled. Sizes are compared within a repeat (cycle), if
    they ran side by side: each repeat gives an A and a C by least squares, and the intervals are
    Student's t over repeats.
    """
    table = _table(steps)
    if table is None:
        return None
    sizes, times = table
    rows = [line for cycle in times.values for line in [_line(sizes, cycle)]]
    fixed, per_sample = np.array([a for a, _ in rows]), np.array([c for _, c in rows])
    batch = float(sizes[list(times.columns).index("solo")])
    launches = times.index.get_level_values("launch").to_numpy()
    share = fixed / (fixed + per_sample * batch)
    whole_s = float((fixed + per_sample * batch).mean())
    mean_s = times.to_numpy().mean(axis=0)
    a, c = _line(sizes, mean_s)
    return BatchCurve(
        batch=batch,
        fixed_s=_at_most(_interval(fixed, launches), whole_s),
        sample_s=_not_negative(_interval(per_sample, launches)),
        fixed_share=_at_most(_interval(share, launches), 1.0),
        sizes=tuple(sorted(float(size) for size in sizes)),
        misfit=float(np.abs((a + c * sizes) / mean_s - 1).max()),
    )


def _table(steps: pd.DataFrame) -> tuple[Array, pd.DataFrame] | None:
    """Samples per step of each rung that ran, and mean seconds per (launch, cycle) and rung."""
    rows = pd.concat([steady_rows(steps, rung) for rung in CURVE])
    if not len(rows):
        return None
    names = rows["rung"].astype(str)
    times = rows.groupby(["launch", "cycle", names])["step_s"].mean().unstack()
    ran = [rung for rung in CURVE if rung in times.columns and rung != "solo"]
    if not ran or "solo" not in times.columns:
        return None
    times = times[["solo", *ran]].dropna()
    if len(times) < MIN_REPEATS:
        return None
    samples = rows.groupby(names)["samples"].mean()
    return samples[list(times.columns)].to_numpy(dtype=np.float64), times


def _line(sizes: Array, seconds: Array) -> tuple[float, float]:
    """A and C by least squares, each time weighed by its inverse: errors are relative."""
    weights = 1 / seconds
    design = np.stack([weights, sizes * weights], axis=1)
    (a, c), *_ = np.linalg.lstsq(design, np.ones_like(seconds))
    return float(a), float(c)


def _not_negative(found: Interval) -> Interval:
    """A sample more takes time, if by noise it did not: a larger batch gains twofold at best."""
    low = None if found.low is None else max(0.0, found.low)
    high = None if found.high is None else max(0.0, found.high)
    return Interval(value=max(0.0, found.value), low=low, high=high)


def _at_most(found: Interval, most: float) -> Interval:
    """What is fixed is no more than the whole step."""
    low = None if found.low is None else min(most, found.low)
    high = None if found.high is None else min(most, found.high)
    return Interval(value=min(most, found.value), low=low, high=high)


def _interval(values: Array, launches: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Interval:
    groups = [values[launches == launch] for launch in np.unique(launches)]
    return mean_interval(float(values.mean()), grouped_spread(groups))
