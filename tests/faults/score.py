"""Compares what was diagnosed with what was injected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from matrix import JITTER, Case, Injected
from measure import Measured

from sfbench.common.schema import Diagnosis, SweepResult, TimeShare

RIGHT = 0.95
"""Part of the faults whose first diagnosis has to be right."""
SIZE_RATIO, SIZE_POINTS = 0.20, 0.03
"""A size is right within the wider of the two."""
COVERED = 0.90
"""Part of the injected sizes that the intervals have to hold."""
SUM = 0.005
"""How far the time shares of a point may be from making the whole step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One case beside its truth."""

    case: Case
    first: str
    """Cause of the first diagnosis that is no mere info; ``none``."""
    rank: int | None
    cause_right: bool
    size: float | None
    """Share of the largest fault of the step that the injections alone make."""
    truth: float | None
    """The same of the step as it was measured."""
    most: float | None
    """The same with all of the host's own work that it may bring to light."""
    found: float | None
    """What was said to be regained, where the cause is right."""
    low: float | None
    high: float | None
    bottlenecks: int
    """Those that the job does not have by itself."""
    sum_error: float
    """Largest over the points; infinite where a share is missing."""
    busy: float
    failed: tuple[str, ...] = ()
    """Errors of points that gave no figures."""
    refused: tuple[str, ...] = ()
    """The same of an earlier attempt."""

    @property
    def size_right(self) -> bool | None:
        """Within the budget; None where there is nothing to compare."""
        if self.size is None or self.found is None:
            return None
        return abs(self.found - self.size) <= max(SIZE_POINTS, SIZE_RATIO * self.size)

    @property
    def covered(self) -> bool | None:
        """Whether the interval meets the truth, which lies from ``truth`` to ``most``."""
        if self.truth is None or self.most is None or self.low is None or self.high is None:
            return None
        return self.low <= self.most and self.truth <= self.high


def cause(diagnosis: Diagnosis) -> str:
    """The name of the cause, the two kinds of straggler apart."""
    return JITTER if diagnosis.evidence.get("kind") == "rotating" else diagnosis.id


def score(measured: Measured) -> Scored:
    """Score one case: a fault by its first diagnosis, a control by its bottlenecks."""
    case, result = measured.case, measured.result
    named = [d for d in result.diagnoses if d.severity != "info"]
    first = named[0] if named else None
    wanted = case.injected[0] if case.injected else None
    right = _right(case, named)
    regain = first.regain if first is not None and wanted is not None and right else None
    step_ms = _step_ms(case, result)
    return Scored(
        case=case,
        first=cause(first) if first else "none",
        rank=first.rank if first else None,
        cause_right=right,
        size=case.share(wanted) if wanted else None,
        truth=case.share(wanted, step_ms=step_ms) if wanted else None,
        most=case.share(wanted, own=True, step_ms=step_ms) if wanted else None,
        found=regain.value if regain else None,
        low=regain.low if regain else None,
        high=regain.high if regain else None,
        bottlenecks=len(_unfounded(case, result.diagnoses)),
        sum_error=_sum_error(result),
        busy=measured.busy,
        failed=measured.errors,
        refused=measured.refused,
    )


def _step_ms(case: Case, result: SweepResult) -> float | None:
    """As it was measured where the diagnosis is expected; None where it was not.

    What is injected is a time. The host adds to the step what it likes, and a part of the whole is
    a part of the step that there was.
    """
    steps = [point.step_s for point in result.points if point.devices == case.expected_at]
    return 1e3 * steps[0].value if steps and steps[0] is not None else None


def _right(case: Case, named: Sequence[Diagnosis]) -> bool:
    """The largest fault first, at its device count, and every other one named as well."""
    if not case.injected:
        return not _unfounded(case, named)
    if not named or named[0].devices != case.expected_at:
        return False
    return _matches(case.injected[0], named[0]) and all(
        any(_matches(other, d) for d in named) for other in case.injected[1:]
    )


def _unfounded(case: Case, named: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Bottlenecks that the job does not have by itself."""
    return [d for d in named if d.severity == "bottleneck" and d.id not in case.real]


def _matches(injected: Injected, diagnosis: Diagnosis) -> bool:
    return (injected.cause, injected.rank) == (cause(diagnosis), diagnosis.rank)


def _sum_error(result: SweepResult) -> float:
    errors = [_of_point(p.time_share) for p in result.points]
    return max(errors, default=float("inf"))


def _of_point(shares: TimeShare | None) -> float:
    if shares is None:
        return float("inf")
    values = [getattr(shares, field.name).value for field in fields(shares)]
    return float("inf") if None in values else abs(sum(values) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All cases beside the budget."""

    scored: tuple[Scored, ...]

    @property
    def faults(self) -> tuple[Scored, ...]:
        """Cases in which something was injected."""
        return tuple(s for s in self.scored if s.case.injected)

    @property
    def controls(self) -> tuple[Scored, ...]:
        """Cases in which nothing was."""
        return tuple(s for s in self.scored if not s.case.injected)

    @property
    def right(self) -> float:
        """Part of the faults whose first diagnosis is right."""
        return sum(s.cause_right for s in self.faults) / len(self.faults)

    @property
    def covered(self) -> float:
        """Part of the faults whose size the interval holds; a wrong cause holds nothing."""
        return sum(s.covered is True for s in self.faults) / len(self.faults)

    def misses(self) -> tuple[str, ...]:
        """Where the budget is missed, in words."""
        wrong = [s for s in self.faults if not s.cause_right]
        words = [f"{s.case.name}: shares sum to 1 only within {s.sum_error:.3g}"
                 for s in self.scored if s.sum_error > SUM]  # fmt: skip
        if self.faults and self.right < RIGHT:
            words.append("first diagnosis wrong: " + ", ".join(s.case.name for s in wrong))
        words += [
            f"{s.case.name}: {100 * s.found:.1f} points said, {100 * s.size:.1f} injected"
            for s in self.faults
            if s.size_right is False and s.found is not None and s.size is not None
        ]
        words += [
            f"{s.case.name}: a bottleneck where there is none, {s.first}"
            for s in self.controls
            if s.bottlenecks
        ]
        if self.faults and self.covered < COVERED:
            out = [s.case.name for s in self.faults if s.covered is not True]
            words.append("intervals that miss the injected size: " + ", ".join(out))
        return tuple(words)
