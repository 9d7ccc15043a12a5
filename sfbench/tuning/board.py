"""The standing of candidates after each round, and who goes on. Pure.

The round is the unit: the job as it is and each candidate, one launch each, one log ratio per
candidate. Looks are fixed beforehand; an error of 5 % is shared by all candidates and looks. Who
has shown no gain worth having after three rounds is dropped, which can make no false gain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sfbench.gating.gate_report import Estimate
from sfbench.gating.statistics import control
from sfbench.gating.statistics.decision import MIN_VALUES, Centre, centre, estimate

LOOKS = (6, 9, 12)
"""Rounds after which a gain may be told."""
ERROR = 0.05
"""Over all candidates and looks together, one-sided."""
WORTH = 0.02
"""A gain below this ratio is not worth a line."""

HOPE = 0.5
"""Who lies below ``WORTH`` by so many standard errors is dropped."""

Standing = Literal["running", "gain", "no-gain", "failed", "contaminated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchValue:
    """One launch."""

    samples_per_s: float
    cached_samples_per_s: float | None
    """The same steps on batches from memory: the control of what only loads otherwise."""


@dataclass(slots=True, kw_only=True)
class Column:
    """One candidate so far."""

    controlled: bool
    """Steps on batches from memory must not change."""
    standing: Standing = "running"
    why: str = ""
    logs: list[float] = field(default_factory=list)
    control_logs: list[float] = field(default_factory=list)
    taken_bytes: int | None = None
    """Most memory of the machine that a launch took; None: not seen."""

    @property
    def centre(self) -> Centre | None:
        """Of the log ratios; None if there are too few."""
        return centre(self.logs) if len(self.logs) >= MIN_VALUES else None


class Board:
    """All candidates of one command."""

    def __init__(self, controlled: Sequence[bool]) -> None:
        """One entry for each candidate, by its place."""
        self.columns = [Column(controlled=one) for one in controlled]
        self.rounds = 0

    @property
    def running(self) -> tuple[int, ...]:
        """Places of those that go on."""
        return tuple(n for n, one in enumerate(self.columns) if one.standing == "running")

    @property
    def confidence(self) -> float:
        """Of each interval, so that all of them hold together."""
        return 1 - 2 * ERROR / max(1, len(self.columns)) / len(LOOKS)

    def fail(self, place: int, why: str) -> None:
        """A trial gave nothing: its candidate is out."""
        self.columns[place].standing, self.columns[place].why = "failed", why

    def took(self, place: int, taken_bytes: int | None) -> None:
        """A launch of a candidate took so much memory."""
        column = self.columns[place]
        column.taken_bytes = max(column.taken_bytes or 0, taken_bytes or 0) or None

    def add(self, base: LaunchValue, values: Mapping[int, LaunchValue]) -> None:
        """A round is over; ``values`` by place."""
        self.rounds += 1
        for place, value in values.items():
            column = self.columns[place]
            column.logs.append(math.log(value.samples_per_s / base.samples_per_s))
            if base.cached_samples_per_s and value.cached_samples_per_s:
                ratio = value.cached_samples_per_s / base.cached_samples_per_s
                column.control_logs.append(math.log(ratio))
        for place in self.running:
            self._judge(self.columns[place])

    def end(self) -> None:
        """No time is left: those that go on are looked at once more."""
        for place in self.running:
            column = self.columns[place]
            if len(column.logs) >= MIN_VALUES and len(column.logs) not in LOOKS:
                self._look(column)

    def estimate(self, place: int) -> Estimate | None:
        """Gain of a candidate with an interval that holds together with all others'."""
        at = self.columns[place].centre
        return None if at is None else estimate(at, self.confidence)

    def _judge(self, column: Column) -> None:
        at = column.centre
        if at is None:
            return
        if at.mean + HOPE * at.error < math.log1p(WORTH):
            column.standing = "no-gain"
        elif len(column.logs) in LOOKS:
            self._look(column)

    def _look(self, column: Column) -> None:
        at = column.centre
        assert at is not None
        found = estimate(at, self.confidence)
        if found.low > 0 and found.value >= WORTH:
            moved = column.controlled and _moved(column.control_logs)
            column.standing = "contaminated" if moved else "gain"
            column.why = "batches from memory, which it cannot touch, changed too" if moved else ""


def _moved(logs: Sequence[float]) -> bool:
    return len(logs) >= MIN_VALUES and control.differs(centre(logs), control.BAND)
