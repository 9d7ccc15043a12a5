"""One device count as measured, before it is compared with one device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd

from sfbench.analyze.cycles import cycles
from sfbench.analyze.drift import SoloBasis, solo_basis
from sfbench.analyze.intervals import Array
from sfbench.analyze.quantities import NO_STALLS
from sfbench.analyze.rates import JobRate, job_rate, with_stalls
from sfbench.analyze.shares import Shares, time_shares
from sfbench.analyze.stalls import MOST, Stalls
from sfbench.analyze.steps import ordinary, rank_rows
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import RankInfo, RankResult, Rung, StepQuantiles
from sfbench.common.units import half_width

QUANTILES = (
    0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5,
    0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0,
)  # fmt: skip


SAME_BATCH = 0.01
"""Batches that differ by less count as the same."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredPoint:
    """What the launches of one device count measured together."""

    devices: int
    launches: tuple[MeasuredLaunch, ...]
    """Those with at least one ordinary train step."""
    rate: JobRate
    """Of steps with the stalls that belong to them."""
    stalls: Stalls | None
    cached: JobRate | None
    """The same on the ``cached`` rung, if it ran."""
    samples_per_step: float
    """Of the whole job, mean."""
    usual_samples: float
    """The same, median: a last batch of an epoch may be smaller."""
    largest_samples: float
    """The same, the largest: a last update of an epoch may add up fewer batches."""
    ranks: tuple[RankResult, ...]
    rank_samples: Array
    """Mean samples per step of each rank."""
    quantiles: StepQuantiles
    shares: Shares | None
    solo: SoloBasis | None
    torn_steps: int
    """Train steps that were measured on some ranks only, and left out."""
    disturbed_cycles: int
    """Cycles that time shares leave out."""
    other_share: float
    """Validation, saving and the like, of the wall time of the job, as it would run by itself."""

    def same_batch(self, one: MeasuredPoint, parts: int = 1) -> bool:
        """Whether a ``parts``-th of this batch is that of the point at one device.

        Mean, median and largest all differ if it is not: smaller last batches, as many in an epoch
        as the device count wants, change the mean alone, batches of unlike length the median and
        the largest. A smaller last update that comes as often as a whole one changes both others.
        """
        pairs = (
            (self.samples_per_step, one.samples_per_step),
            (self.usual_samples, one.usual_samples),
            (self.largest_samples, one.largest_samples),
        )
        return any(abs(here / parts / there - 1) <= SAME_BATCH for here, there in pairs)

    @property
    def longer_by_stalls(self) -> float:
        """A step of the job, over one without stalls."""
        step_s = self.rate.seconds / self.rate.steps
        return step_s / (step_s - self.stalls_per_step_s)

    @property
    def stalls_per_step_s(self) -> float:
        """What stalls cost each step of the job."""
        return self.stalls.per_step_s.value if self.stalls is not None else 0.0

    @property
    def stall_error(self) -> float:
        """Half-width of what stalls cost, as the logarithm of a ratio of steps."""
        if self.stalls is None:
            return 0.0
        half = (half_width(self.stalls.per_step_s) or 0.0) * self.rate.steps / self.rate.seconds
        return -math.log1p(-min(half, MOST))

    @property
    def slow_rank(self) -> int | None:
        """The rank that is slower than the others, if one is above noise."""
        return self.shares.slow.rank if self.shares and self.shares.slow else None


def measure_point(
    launches: Sequence[MeasuredLaunch],
    steps: pd.DataFrame,
    job: pd.DataFrame,
    *,
    ladder: bool,
    stalls: Stalls | None = None,
) -> MeasuredPoint | None:
    """Join the launches of one device count; None if not one train step is left to use.

    ``steps`` and ``job``: the labelled frames, of these launches alone. ``ladder``: other rungs
    than ``train`` were asked for. ``stalls``: what was taken off the steps.
    """
    kept = ordinary(job)
    train = kept[(kept["rung"] == "train").to_numpy()]
    if not len(train):
        return None
    devices = launches[0].plan.devices
    stalls_s = stalls.per_step_s if stalls is not None else NO_STALLS
    rate = with_stalls(job_rate(train), stalls_s.value)
    good = {one.launch for one in rate.launches}
    used = tuple(m for m in launches if m.plan.index in good)
    rows = rank_rows(steps, kept, "train")
    by_cycle = cycles(steps, job, _replayed(used))
    shares = time_shares(by_cycle, unavailable(used), stalls_s) if ladder else None
    slow = shares.slow.rank if shares and shares.slow else None
    return MeasuredPoint(
        devices=devices,
        launches=used,
        rate=rate,
        stalls=stalls,
        cached=_rate_of(kept, "cached", stalls_s.value),
        samples_per_step=float(train["samples"].mean()),
        usual_samples=float(train["samples"].median()),
        largest_samples=float(train["samples"].max()),
        ranks=_rank_results(used, rows, by_cycle.solo_s),
        rank_samples=_sums(rows, "samples", devices) / len(train),
        quantiles=_quantiles(rows),
        shares=shares,
        solo=solo_basis(by_cycle, slow),
        torn_steps=_torn(steps, job, devices),
        disturbed_cycles=by_cycle.disturbed if ladder else 0,
        other_share=_other_share(rate, stalls),
    )


def _rate_of(kept: pd.DataFrame, rung: Rung, stalls_s: float) -> JobRate | None:
    rows = kept[(kept["rung"] == rung).to_numpy()]
    return with_stalls(job_rate(rows), stalls_s) if len(rows) else None


def _replayed(launches: Sequence[MeasuredLaunch]) -> Mapping[int, int]:
    return {m.plan.index: m.record.kept_batches for m in launches if m.record is not None}


def _other_share(rate: JobRate, stalls: Stalls | None) -> float:
    if stalls is None:
        return 0.0
    return stalls.outside_s / (stalls.outside_s + rate.seconds / rate.steps)


def unavailable(launches: Sequence[MeasuredLaunch]) -> Mapping[Rung, str]:
    """Why rungs could not run, over all launches."""
    reasons: dict[Rung, str] = {}
    for launch in launches:
        if launch.record is not None:
            reasons |= cast("dict[Rung, str]", launch.record.unavailable)
    return reasons


def _rank_results(
    launches: Sequence[MeasuredLaunch], rows: pd.DataFrame, solo_s: Array
) -> tuple[RankResult, ...]:
    """Each rank by its own clock: its samples / its time, from its ordinary train steps."""
    infos = _infos(launches)
    ranks = solo_s.shape[1]
    samples, seconds = _sums(rows, "samples", ranks), _sums(rows, "step_s", ranks)
    waits, steps = _sums(rows, "data_wait_s", ranks), np.bincount(rows["rank"], minlength=ranks)
    solo = [values[np.isfinite(values)] for values in solo_s.T]
    return tuple(
        RankResult(
            rank=rank,
            local_rank=infos[rank].local_rank,
            host=infos[rank].host,
            node=infos[rank].node,
            device=infos[rank].device,
            samples_per_s=float(samples[rank] / seconds[rank]),
            solo_step_s=float(solo[rank].mean()) if len(solo[rank]) else None,
            data_wait_s=float(waits[rank] / steps[rank]),
        )
        for rank in sorted(infos)
    )


def _sums(rows: pd.DataFrame, column: str, ranks: int) -> Array:
    """Total of a column by rank."""
    weights = rows[column].to_numpy(dtype=np.float64)
    return np.bincount(rows["rank"], weights=weights, minlength=ranks).astype(np.float64)


def _infos(launches: Sequence[MeasuredLaunch]) -> dict[int, RankInfo]:
    infos: dict[int, RankInfo] = {}
    for launch in launches:
        if launch.record is not None:
            infos |= {info.rank: info for info in launch.record.ranks}
    return infos


def _quantiles(rows: pd.DataFrame) -> StepQuantiles:
    values = np.quantile(rows["step_s"].to_numpy(dtype=np.float64), QUANTILES)
    return StepQuantiles(q=QUANTILES, step_s=tuple(float(v) for v in values))


def _torn(steps: pd.DataFrame, job: pd.DataFrame, devices: int) -> int:
    rows = int((steps["measured"] & (steps["rung"] == "train")).sum())
    whole = int((job["rung"] == "train").sum())
    return -(-(rows - whole * devices) // devices)
