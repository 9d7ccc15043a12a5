"""The best set beside the job as it is, in fresh launches: the gain that is promised."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sfbench.gating.gate_report import Estimate
from sfbench.gating.statistics.decision import MIN_VALUES, centre, estimate
from sfbench.tuning.best_set import joined
from sfbench.tuning.launch_watch import OutOfTime
from sfbench.tuning.trial_launches import TrialLaunches
from sfbench.tuning.tried import Candidate, TriedSettings

CONFIRM_ROUNDS = 6
CONFIRM_SEED = 1_000
"""Rounds of the confirmation are numbered from here: their launches visit rungs in other orders."""
ERROR = 0.05
"""Two-sided, over all sets that are measured here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """The set that did best in fresh launches."""

    chosen: tuple[Candidate, ...]
    gain: Estimate | None
    """None: no launch with it succeeded."""
    pairs: int
    why: str = ""
    """Of a set that failed."""

    @property
    def holds(self) -> bool:
        """Whether the gain was seen again."""
        return self.gain is not None and self.gain.low > 0


def confirm(
    launches: TrialLaunches,
    chosen: Sequence[Candidate],
    rng: random.Random,
    has_time: Callable[[int], bool],
) -> Confirmed:
    """Measure all of ``chosen`` together, and the first by itself if there are several.

    ``has_time`` tells whether so many launches more fit into the budget.
    """
    sets = [tuple(chosen), *([(chosen[0],)] if len(chosen) > 1 else [])]
    settings = [joined(one) for one in sets]
    logs, failed = _measured(launches, settings, rng, _rounds(len(sets), has_time))
    confidence = 1 - ERROR / len(sets)
    found = [
        Confirmed(
            chosen=one,
            gain=(
                estimate(centre(values), confidence)
                if len(values) >= MIN_VALUES and not why
                else None
            ),
            pairs=len(values),
            why=why,
        )
        for one, values, why in zip(sets, logs, failed, strict=True)
    ]
    return max(found, key=lambda one: -math.inf if one.gain is None else one.gain.value)


def _rounds(sets: int, has_time: Callable[[int], bool]) -> Iterator[int]:
    """As many as fit, each with one launch of each set and of the job as it is."""
    for round_ in range(CONFIRM_SEED, CONFIRM_SEED + CONFIRM_ROUNDS):
        if not has_time(1 + sets):
            return
        yield round_


def _measured(
    launches: TrialLaunches,
    settings: Sequence[TriedSettings],
    rng: random.Random,
    rounds: Iterator[int],
) -> tuple[list[list[float]], list[str]]:
    """Log ratios of each set, and why it failed if it did."""
    logs: list[list[float]] = [[] for _ in settings]
    failed = [""] * len(settings)
    for round_ in rounds:
        running = [place for place, why in enumerate(failed) if not why]
        base, rates = 0.0, {}
        for place in rng.sample([-1, *running], 1 + len(running)):
            if place < 0:
                try:
                    base = launches.base(round_).samples_per_s
                except OutOfTime:
                    return logs, failed
                continue
            value = launches.trial(settings[place], round_)
            if isinstance(value, str):
                failed[place] = value
            else:
                rates[place] = value.samples_per_s
        for place, rate in rates.items():
            logs[place].append(math.log(rate / base))
    return logs, failed
