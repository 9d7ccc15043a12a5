"""Measures pair after pair until a look decides, the budget is used, or a FAIL is confirmed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sfbench.common.errors import Unsteady
from sfbench.gating.gate_report import ArmName, SlotValue, Verdict
from sfbench.gating.statistics.decision import CONFIRM_PAIRS, LOOKS
from sfbench.gating.statistics.judge import Judge

HOPE = 0.5
"""Before the first look a pair may still take this part of what the fastest one took: the first
pairs measure all rungs, and a busy machine may get quiet."""

Measure = Callable[[ArmName, int], SlotValue]
"""Launches one side as part of a pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """How a comparison ended."""

    verdict: Verdict
    pairs: int
    """After which the verdict fell, a confirmation not counted."""
    slots: tuple[SlotValue, ...]
    """Of all pairs, those of the confirmation behind the others."""
    confirmed: bool
    unconfirmed: bool = False
    """A look said FAIL, and fresh pairs did not show it."""
    pair_s: float
    """What a pair takes."""
    stopped: str | None = None
    """Why no more was measured, if that was neither a decision nor the budget."""


class PairLoop:
    """One comparison in the making."""

    def __init__(
        self, judge: Judge, orders: Iterator[Sequence[ArmName]], clock: Callable[[], float]
    ) -> None:
        """``orders``: what is launched in each pair, and in which order. ``clock``: in s."""
        self._judge = judge
        self._orders = orders
        self._clock = clock
        self._began_s = clock()
        self._pair_s: list[float] = []
        self._stopped: str | None = None

    def run(
        self, measure: Measure, again: Callable[[], AbstractContextManager[Measure]]
    ) -> Compared:
        """``again`` opens the same sides afresh, for the confirmation of a FAIL.

        Raises:
            Unsteady: not even one pair came to a steady state.
        """
        slots: list[SlotValue] = []
        verdict = self._until_decided(measure, slots)
        pairs, confirmed = len(self._pair_s), False
        failed = verdict == "fail"
        if failed:
            with again() as measure_again:
                verdict, confirmed = self._confirm(measure_again, slots)
        return Compared(
            verdict=verdict,
            pairs=pairs,
            slots=tuple(slots),
            confirmed=confirmed,
            unconfirmed=failed and verdict == "inconclusive" and self._stopped is None,
            pair_s=statistics.median(self._pair_s),
            stopped=self._stopped,
        )

    def _until_decided(self, measure: Measure, slots: list[SlotValue]) -> Verdict:
        for pair in range(LOOKS[-1]):
            if pair and not self._next_look_fits(pair):
                break
            try:
                slots.extend(self._pair(measure, pair))
            except Unsteady as error:
                if not slots:
                    raise
                self._stopped = str(error)
                break
            verdict = self._judge.so_far(slots) if pair + 1 in LOOKS else None
            if verdict is not None:
                return verdict
        return self._judge.at_end(slots)

    def _confirm(self, measure: Measure, slots: list[SlotValue]) -> tuple[Verdict, bool]:
        first, done = tuple(slots), len(self._pair_s)
        numbers = range(done, done + CONFIRM_PAIRS)
        fresh: list[SlotValue] = []
        try:
            for pair in numbers:
                fresh += self._pair(measure, pair)
        except Unsteady as error:
            self._stopped = str(error)
            slots.extend(fresh)
            return self._judge.at_end(slots), False
        slots.extend(fresh)
        if self._judge.contaminated(slots):
            return "contaminated", False
        if self._judge.confirmed(first, fresh):
            return "fail", True
        return "inconclusive", False

    def _pair(self, measure: Measure, pair: int) -> list[SlotValue]:
        began_s = self._clock()
        slots = [measure(arm, pair) for arm in next(self._orders)]
        self._pair_s.append(self._clock() - began_s)
        return slots

    def _next_look_fits(self, done: int) -> bool:
        """Whether the budget lasts until the next look: there is no verdict before.

        Beyond the first look a FAIL has to find time for its confirmation as well.
        """
        left_s = self._judge.options.budget_s - (self._clock() - self._began_s)
        if done < LOOKS[0]:
            return (LOOKS[0] - done) * HOPE * min(self._pair_s) <= left_s
        look = next(look for look in LOOKS if look > done)
        return (look - done + CONFIRM_PAIRS) * min(self._pair_s) <= left_s
