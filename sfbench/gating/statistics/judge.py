"""What slots say so far: the numbers, and the verdict that they allow. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sfbench.gating.gate_report import GateOptions, SlotValue, Verdict
from sfbench.gating.statistics import control
from sfbench.gating.statistics.decision import (
    MIN_VALUES,
    Centre,
    centre,
    confirms,
    decide,
    difference,
    settled,
)
from sfbench.gating.stored import Stored

Asked = Literal["change", "efficiency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One thing that is asked of the candidate: is it above a limit?"""

    asked: Asked
    at: Centre
    """Log ratio to the base, or log efficiency."""
    limit: float
    """In the same logarithm."""


class Contrast(Protocol):
    """How slots become log ratios: against a side measured beside, or against a stored one.

    Each is None if there are too few values.
    """

    def change(self, slots: Sequence[SlotValue]) -> Centre | None:
        """Of log(candidate / base) in samples/s."""
        ...

    def control(self, slots: Sequence[SlotValue]) -> Centre | None:
        """The same of the cached rung."""
        ...

    def levels(self, slots: Sequence[SlotValue]) -> list[tuple[float, float]]:
        """Logs of the cached rung's samples/s and of the job's, of each pair in order."""
        ...

    def efficiency(self, slots: Sequence[SlotValue]) -> Centre | None:
        """Of the candidate's log efficiency, anchored to the base's one-device rate."""
        ...


class Paired:
    """Base and candidate launched in turn."""

    def __init__(self, devices: int) -> None:
        self._devices = devices

    def change(self, slots: Sequence[SlotValue]) -> Centre | None:
        """Of the log ratios of whole pairs."""
        return _centre([math.log(c.samples_per_s / b.samples_per_s) for b, c in pairs(slots)])

    def control(self, slots: Sequence[SlotValue]) -> Centre | None:
        """Of the pairs in which both sides have it."""
        return _centre([math.log(c / b) for b, c in self._cached(slots)])

    def levels(self, slots: Sequence[SlotValue]) -> list[tuple[float, float]]:
        """Means over both sides."""
        return [
            (
                math.log(b.cached_samples_per_s * c.cached_samples_per_s) / 2,
                math.log(b.samples_per_s * c.samples_per_s) / 2,
            )
            for b, c in pairs(slots)
            if b.cached_samples_per_s and c.cached_samples_per_s
        ]

    def efficiency(self, slots: Sequence[SlotValue]) -> Centre | None:
        """Each pair by its own anchor, by the usual one if it has none."""
        known = [slot.solo_samples_per_s for slot in slots if slot.arm == "base"]
        usual = median(known)
        if usual is None:
            return None
        return _centre(
            [
                math.log(c.samples_per_s / (self._devices * (b.solo_samples_per_s or usual)))
                for b, c in pairs(slots)
            ]
        )

    def _cached(self, slots: Sequence[SlotValue]) -> list[tuple[float, float]]:
        return [
            (b.cached_samples_per_s, c.cached_samples_per_s)
            for b, c in pairs(slots)
            if b.cached_samples_per_s and c.cached_samples_per_s
        ]


class AgainstStored:
    """The candidate alone, beside what was measured of the base another day."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored

    def change(self, slots: Sequence[SlotValue]) -> Centre | None:
        """Difference of two independent means of logarithms."""
        here = _centre([math.log(slot.samples_per_s) for slot in slots])
        there = _centre([math.log(rate) for rate in self._stored.rates])
        return None if here is None or there is None else difference(here, there)

    def control(self, slots: Sequence[SlotValue]) -> Centre | None:
        """The same of the cached rung."""
        here = _centre([control for control, _ in self.levels(slots)])
        there = _centre([math.log(rate) for rate in self._stored.cached_rates])
        return None if here is None or there is None else difference(here, there)

    def levels(self, slots: Sequence[SlotValue]) -> list[tuple[float, float]]:
        """Of each launch."""
        return [
            (math.log(s.cached_samples_per_s), math.log(s.samples_per_s))
            for s in slots
            if s.cached_samples_per_s
        ]

    def efficiency(self, slots: Sequence[SlotValue]) -> Centre | None:
        """By the stored anchor."""
        anchor = self._stored.solo_samples_per_s
        if anchor is None:
            return None
        here = _centre([math.log(slot.samples_per_s) for slot in slots])
        return _moved(here, math.log(self._stored.devices * anchor))


class Judge:
    """Asks what the options ask, and gives the verdict."""

    def __init__(self, evidence: Contrast, options: GateOptions, band: float) -> None:
        self.evidence = evidence
        self.options = options
        self.band = band

    def so_far(self, slots: Sequence[SlotValue]) -> Verdict | None:
        """The verdict after a look's number of pairs; None = go on."""
        questions = self.questions(slots)
        decisions = {decide(question.at, question.limit) for question in questions}
        if not questions or ("fail" not in decisions and decisions != {"pass"}):
            return None
        if self.contaminated(slots):
            return "contaminated"
        return "fail" if "fail" in decisions else "pass"

    def unsettled(self, slots: Sequence[SlotValue]) -> tuple[Question, ...]:
        """The questions whose answer is still open."""
        return tuple(q for q in self.questions(slots) if not settled(q.at, q.limit))

    def at_end(self, slots: Sequence[SlotValue]) -> Verdict:
        """What is said if no look decided."""
        return "contaminated" if self.contaminated(slots) else "inconclusive"

    def confirmed(self, first: Sequence[SlotValue], fresh: Sequence[SlotValue]) -> bool:
        """Whether what failed at first lies below its limit in fresh pairs as well."""
        again = {question.asked: question for question in self.questions(fresh)}
        failed = [q for q in self.questions(first) if decide(q.at, q.limit) == "fail"]
        return any(q.asked in again and confirms(again[q.asked].at, q.limit) for q in failed)

    def contaminated(self, slots: Sequence[SlotValue]) -> bool:
        """Whether the control moved: then the machine did."""
        at = self.evidence.control(slots)
        return self.shifted(slots) or (at is not None and control.differs(at, self.band))

    def shifted(self, slots: Sequence[SlotValue]) -> bool:
        """Whether the control's level shifted in time."""
        levels = self.evidence.levels(slots)
        return control.shifted([own for own, _ in levels], [job for _, job in levels])

    def questions(self, slots: Sequence[SlotValue]) -> list[Question]:
        """What is asked, as far as there are values for it; empty if any is without."""
        limits: dict[Asked, float] = {"change": math.log1p(-self.options.margin)}
        if self.options.min_efficiency is not None:
            limits["efficiency"] = math.log(self.options.min_efficiency)
        centres: dict[Asked, Centre | None] = {
            "change": self.evidence.change(slots),
            "efficiency": self.evidence.efficiency(slots),
        }
        asked = [
            Question(asked=name, at=at, limit=limit)
            for name, limit in limits.items()
            if (at := centres[name]) is not None
        ]
        return asked if len(asked) == len(limits) else []


def pairs(slots: Sequence[SlotValue]) -> list[tuple[SlotValue, SlotValue]]:
    """Base and candidate of each whole pair, in the order of the pairs."""
    base = {slot.pair: slot for slot in slots if slot.arm == "base"}
    candidate = {slot.pair: slot for slot in slots if slot.arm == "candidate"}
    return [(base[n], candidate[n]) for n in sorted(base.keys() & candidate.keys())]


def median(values: Sequence[float | None]) -> float | None:
    """Of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _centre(logs: Sequence[float]) -> Centre | None:
    return centre(logs) if len(logs) >= MIN_VALUES else None


def _moved(at: Centre | None, by: float) -> Centre | None:
    if at is None:
        return None
    return Centre(mean=at.mean - by, error=at.error, degrees=at.degrees, count=at.count)
