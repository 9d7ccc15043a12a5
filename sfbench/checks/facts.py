"""What the checks judge: one launch as its ranks saw it. Pure values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common import units
from sfbench.common.schema import STEP_COLUMNS, CheckResult, Point
from sfbench.protocol.evidence import Loader, RankEvidence

Status = Literal["pass", "fail", "warn", "not-applicable"]
_SEVERITY: tuple[Status, ...] = ("not-applicable", "pass", "warn", "fail")
ALL_PAIRS = 16
_RUNG, _SAMPLES = STEP_COLUMNS.index("rung"), STEP_COLUMNS.index("samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a launch gave no record."""

    kind: str
    """As ``LaunchError.kind``."""
    rank: int | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFacts:
    """One launch."""

    devices: int
    ranks: tuple[RankEvidence, ...]
    """By rank; some may be missing if the launch failed."""
    failure: Failure | None = None
    samples_per_update: float | None = None
    """Per device; None if no step was counted."""
    fetches_per_update: float | None = None
    communication_s: float | None = None
    """Exposed communication per update, if a sweep has measured it."""

    def peers(self) -> Iterator[tuple[RankEvidence, RankEvidence]]:
        """Pairs of ranks that train replicas of one model on different samples.

        All pairs of few ranks; of many each with the next one, so that time grows as they do.
        """
        pairs = combinations(self.ranks, 2) if len(self.ranks) <= ALL_PAIRS else self._next_ones()
        yield from ((a, b) for a, b in pairs if b.rank in a.peers and a.rank in b.peers)

    def _next_ones(self) -> Iterator[tuple[RankEvidence, RankEvidence]]:
        by_rank = {rank.rank: rank for rank in self.ranks}
        for rank in self.ranks:
            following = min((peer for peer in rank.peers if peer > rank.rank), default=-1)
            if following in by_rank:
                yield rank, by_rank[following]


def launch_facts(launch: MeasuredLaunch, communication_s: float | None = None) -> LaunchFacts:
    """The facts of a launch that has ended, well or not."""
    error = launch.outcome.error
    return LaunchFacts(
        devices=launch.plan.devices,
        ranks=tuple(sorted(launch.evidence, key=lambda rank: rank.rank)),
        failure=Failure(kind=error.kind, rank=error.rank, message=error.message) if error else None,
        samples_per_update=_samples(launch.steps),
        fetches_per_update=launch.record.loop.fetches_per_step if launch.record else None,
        communication_s=communication_s,
    )


def sweep_facts(
    launches: Sequence[MeasuredLaunch], points: Sequence[Point]
) -> tuple[LaunchFacts, ...]:
    """The facts of all launches of a sweep, in order."""
    costs = {point.devices: _communication_s(point) for point in points}
    return tuple(launch_facts(launch, costs.get(launch.plan.devices)) for launch in launches)


def _samples(steps: npt.NDArray[np.float64] | None) -> float | None:
    """Usual samples per step and device if the real loader ran; a last one may be smaller."""
    if steps is None:
        return None
    real = steps[(steps[:, _RUNG] == 0) & (steps[:, _SAMPLES] > 0)]
    return float(np.median(real[:, _SAMPLES])) if len(real) else None


def _communication_s(point: Point) -> float | None:
    """None as well if the share is no figure."""
    share = point.time_share.communication if point.time_share is not None else None
    if share is None or share.value is None or point.step_s is None or not units.is_known(share):
        return None
    return share.value * point.step_s.value


def result(check: str, status: Status, evidence: str) -> CheckResult:
    """A check's result."""
    return CheckResult(id=check, status=status, evidence=evidence)


def worst(results: Sequence[CheckResult]) -> CheckResult:
    """The most severe of the results of several launches; the first one among equals."""
    return max(results, key=lambda r: _SEVERITY.index(r.status))


def training_loaders(rank: RankEvidence) -> list[Loader]:
    """Loaders whose batches were trained on."""
    return [loader for loader in rank.loaders if loader.trains]


def at(line: str) -> str:
    """`` (train.py:12)``, or nothing if the line is unknown."""
    return f" ({line})" if line else ""


def same_host(launch: LaunchFacts) -> Iterator[tuple[RankEvidence, RankEvidence]]:
    """Pairs of ranks of one host."""
    return ((a, b) for a, b in combinations(launch.ranks, 2) if a.host == b.host)


def short(path: str) -> str:
    """The end of a path, enough to know it by."""
    parts = Path(path).parts
    return path if len(parts) <= 3 else str(Path(*parts[-2:]))
