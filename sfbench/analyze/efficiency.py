"""Scaling efficiency: samples_per_s(N) / (N x samples_per_s(1))."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sfbench.analyze.intervals import (
    OWN_LAUNCHES,
    Array,
    LaunchVariance,
    Spread,
    difference_spread,
    grouped_spread,
    ratio_interval,
    spread,
)
from sfbench.analyze.rates import JobRate
from sfbench.common.schema import Interval

PAIRED_ROUNDS = OWN_LAUNCHES
"""From so many common rounds on, the interval is that of the paired differences.

Fixed beforehand: choosing the narrower of two intervals after seeing them covers too little.
"""
SUSPECT_ABOVE = 1.05


def efficiency(
    devices: int, rate: JobRate, one: JobRate, shared: LaunchVariance | None
) -> Interval:
    """Efficiency at ``devices`` against the point at 1 device; at 1 device exactly 1.

    The interval is built on log differences: paired by round if at least ``PAIRED_ROUNDS``
    rounds have both, so that the machine's drift between rounds cancels; else of two independent
    means (Welch). ``shared``: variance between launches, of the whole sweep. Weak and strong
    scaling alike.
    """
    if devices == 1:
        return Interval(value=1.0, low=1.0, high=1.0)
    value = rate.samples_per_s / (devices * one.samples_per_s)
    paired = paired_spread(_log_by_round(rate), _log_by_round(one))
    here, there = spread(rate.log_blocks, shared), spread(one.log_blocks, shared)
    return ratio_interval(value, paired or difference_spread(here, there, shared))


def paired_spread(here: Mapping[int, float], there: Mapping[int, float]) -> Spread | None:
    """Spread of the mean difference over common rounds; None below ``PAIRED_ROUNDS`` of them."""
    common = sorted(here.keys() & there.keys())
    if len(common) < PAIRED_ROUNDS:
        return None
    differences: Array = np.array([here[r] - there[r] for r in common])
    return grouped_spread([differences])


def _log_by_round(rate: JobRate) -> dict[int, float]:
    return {one.round: float(np.log(one.samples_per_s)) for one in rate.launches}
