"""Efficiency with the machine's drift taken out, through the solo rung of each launch.

A solo step is the same work at every device count of a weak-scaling sweep. Where the machine was
slower during the launches at N than during those at 1, solo steps were too, and

    efficiency * solo_s(N) / solo_s(1)

is what N devices would have reached without that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sfbench.analyze.cycles import Cycles, filled_solo
from sfbench.analyze.efficiency import paired_spread
from sfbench.analyze.intervals import Array, difference_spread, ratio_interval, spread
from sfbench.common.schema import Interval


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SoloBasis:
    """A point's solo steps beside its train steps."""

    solo_s: float
    """Mean solo step of the ranks that are not slow."""
    log_ratios: tuple[Array, ...]
    """For each launch, log(solo step / train step) of each cycle."""
    rounds: tuple[int, ...]
    """The round of each launch."""


def solo_basis(cycles: Cycles, slow: int | None, rounds: Mapping[int, int]) -> SoloBasis | None:
    """Collect a point's solo steps; None where the solo rung did not reach every rank.

    ``slow`` is left out: a slow device is no drift. ``rounds``: launch -> round.
    """
    ranks = [r for r in range(cycles.solo_s.shape[1]) if r != slow]
    solo_s = filled_solo(cycles)[:, ranks].mean(axis=1)
    both = np.isfinite(solo_s) & np.isfinite(cycles.train_s)
    if not both.any():
        return None
    launches = np.unique(cycles.launch[both])
    log_ratio = np.log(solo_s[both] / cycles.train_s[both])
    return SoloBasis(
        solo_s=float(solo_s[both].mean()),
        log_ratios=tuple(log_ratio[cycles.launch[both] == launch] for launch in launches),
        rounds=tuple(rounds[int(launch)] for launch in launches),
    )


def drift_corrected(devices: int, plain: float, here: SoloBasis, one: SoloBasis) -> Interval:
    """Correct the efficiency ``plain`` at ``devices``; at 1 device exactly 1.

    The interval is that of the difference of mean log(solo / train): paired by round or Welch, by
    the rule of ``efficiency``. Few launches are pooled by cycle, in which drift cancels.
    """
    if devices == 1:
        return Interval(value=1.0, low=1.0, high=1.0)
    paired = paired_spread(_by_round(here), _by_round(one))
    welch = difference_spread(spread(here.log_ratios, None), spread(one.log_ratios, None))
    return ratio_interval(plain * here.solo_s / one.solo_s, paired or welch)


def disagree(first: Interval, second: Interval) -> bool:
    """Whether two intervals do not meet. Unknown ends never disagree."""
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return False
    return first.high < second.low or second.high < first.low


def _by_round(basis: SoloBasis) -> dict[int, float]:
    return {
        round_: float(values.mean())
        for round_, values in zip(basis.rounds, basis.log_ratios, strict=True)
    }
