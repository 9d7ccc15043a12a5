"""Efficiency with the machine's drift taken out, through the solo rung of each launch.

A solo step is the same work at every device count of a weak-scaling sweep. If the machine was
slower during the launches at N than during those at 1, solo steps were too. So the part of a train
step that one device's work takes by itself, solo / train, is compared between the counts:

    (solo_s / train_s at N) / (solo_s / train_s at 1)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sfbench.analyze.cycles import Cycles, filled_solo
from sfbench.analyze.intervals import (
    OWN_LAUNCHES,
    Array,
    Spread,
    difference_spread,
    ratio_interval,
    spread,
)
from sfbench.common.schema import Interval

LEAST_SOLO_PART = 0.25
"""Of a train step at 1 device: the least part whose speed tells that of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SoloBasis:
    """A point's solo steps beside its train steps, by launch."""

    log_cycles: tuple[Array, ...]
    """log(solo step / train step) of each cycle."""
    log_launches: Array
    """log(sum of solo steps / sum of train steps) of each launch: a mean of the cycles' own
    logarithms would weigh a rare long step too little."""
    ring_error: float = 0.0
    """Half of the 95 % interval of what kept batches say of all batches, as a ratio of a step."""

    @property
    def part(self) -> float:
        """Solo step / train step, the mean over launches."""
        return math.exp(float(self.log_launches.mean()))


def solo_basis(cycles: Cycles, slow: int | None) -> SoloBasis | None:
    """Collect a point's solo steps; None if the solo rung did not reach every rank.

    ``slow`` is left out: a slow device is no drift.
    """
    ranks = [r for r in range(cycles.solo_s.shape[1]) if r != slow]
    solo_s = filled_solo(cycles)[:, ranks].mean(axis=1)
    both = np.isfinite(solo_s) & np.isfinite(cycles.train_s)
    if not both.any():
        return None
    solo_s, train_s, launch = solo_s[both], cycles.train_s[both], cycles.launch[both]
    groups = [launch == one for one in np.unique(launch)]
    return SoloBasis(
        log_cycles=tuple(np.log(solo_s[here] / train_s[here]) for here in groups),
        log_launches=np.log([solo_s[here].sum() / train_s[here].sum() for here in groups]),
        ring_error=cycles.ring_error_s / float(solo_s.mean()),
    )


def drift_corrected(devices: int, batch: float, here: SoloBasis, one: SoloBasis) -> Interval:
    """Efficiency at ``devices`` by the ratio of solo to train steps; at 1 device exactly 1.

    ``batch``: samples per device and step here, over those at 1 device. Each launch counts alike.
    From ``OWN_LAUNCHES`` launches on a count's launches are the sample; fewer are pooled by cycle,
    in which drift cancels. The difference of both counts is Welch's.
    """
    if devices == 1:
        return Interval(value=1.0, low=1.0, high=1.0)
    value = batch * math.exp(float(here.log_launches.mean() - one.log_launches.mean()))
    known = ratio_interval(value, difference_spread(_spread(here), _spread(one)))
    return _of_all_batches(known, math.hypot(here.ring_error, one.ring_error))


def _of_all_batches(known: Interval, error: float) -> Interval:
    if known.low is None or known.high is None or not error:
        return known
    value = known.value
    below, above = (math.hypot(math.log(end / value), error) for end in (known.low, known.high))
    return Interval(value=value, low=value * math.exp(-below), high=value * math.exp(above))


def _spread(basis: SoloBasis) -> Spread | None:
    launches = basis.log_launches
    if len(launches) < OWN_LAUNCHES:
        return spread(basis.log_cycles, None)
    error = float(launches.std(ddof=1)) / math.sqrt(len(launches))
    return Spread(error=error, dof=len(launches) - 1)


def disagree(first: Interval, second: Interval) -> bool:
    """Whether two intervals do not meet. Unknown ends never disagree."""
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return False
    return first.high < second.low or second.high < first.low
