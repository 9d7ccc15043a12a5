"""What the gate measures and says.

Pure values; ``GateReport`` is the document of ``gate --json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sfbench.analyze.parts import PARTS

GATE_SCHEMA = 1

ArmName = Literal["base", "candidate"]
Verdict = Literal[
    "pass", "fail", "inconclusive", "contaminated", "not-touched", "broken", "not-measured"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What a person asks of the gate."""

    devices: int = 1
    margin: float = 0.08
    """A candidate slower by more than this ratio fails."""
    budget_s: float = 180.0
    """Wall time for all pairs. A FAIL at the first look is confirmed even if that needs more."""
    seconds: float = 2.5
    """Measuring budget of one launch."""
    min_efficiency: float | None = None
    """An absolute floor for the candidate's efficiency."""
    seed: int = 20_260


Parts = Mapping[str, float | None]
"""Time shares of a step by the id of the part, as ratios; None if a part was not measured."""


def nothing_measured() -> Parts:
    """No part is known."""
    return {part.id: None for part in PARTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotValue:
    """One launch of one side: medians over its blocks after warmup."""

    arm: ArmName
    pair: int
    samples_per_s: float
    cached_samples_per_s: float | None
    """The control: no pipeline change can move it."""
    solo_samples_per_s: float | None
    """One device by itself: what efficiency is anchored to. Not every launch measures it."""
    fetch_s_per_sample: float | None
    """Of one loader worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SideReport:
    """One side over all pairs: trimmed means of rates; medians of what a worker takes."""

    commit: str | None
    samples_per_s: float
    samples_per_s_interval: Estimate | None = None
    efficiency: float | None = None
    """samples_per_s / (devices x the base's one-device rate)."""
    efficiency_interval: Estimate | None = None
    parts: Parts = field(default_factory=nothing_measured)
    parts_half_width: Parts = field(default_factory=nothing_measured)
    """Of the parts' 95 % intervals; None if there is none."""
    fetch_s_per_sample: float | None = None
    samples_per_step: float | None = None
    """Of all devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How often something happened in simulated runs, with its upper 95 % bound."""

    value: float
    upper: float
    draws: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationNote:
    """What a calibration of this machine says of such a gate."""

    measured_at: str
    """ISO 8601, UTC."""
    age_days: float
    margin: float
    """What the rates hold for, as is the budget."""
    budget_s: float
    false_fail: Rate
    caught: float | None
    """The smallest slow-down that is caught in 95 % of the runs, as a ratio; None: none."""
    control_band: float
    """The control moves by less than this ratio by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """Verdict of a gate with what it rests on."""

    schema: int = GATE_SCHEMA
    verdict: Verdict
    headline: str
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    target: str
    script_args: tuple[str, ...] = ()
    against: str
    """The base's git name, or the stored result's name."""
    devices: int
    emulated: bool = False
    oversubscribed: bool = False
    """Devices shared cores."""
    margin: float
    budget_s: float
    min_efficiency: float | None = None
    pairs: int = 0
    """Pairs of launches; against a stored result: launches."""
    pair_s: float = 0.0
    """Wall time that one takes."""
    pairs_needed: int | None = None
    """If inconclusive: pairs after which noise like this would allow a verdict."""
    change: Estimate | None = None
    """Candidate's samples_per_s over the base's, minus one."""
    control: Estimate | None = None
    """The same of the cached rung."""
    base: SideReport | None = None
    candidate: SideReport | None = None
    confirmed: bool = False
    """A FAIL was seen again in fresh launches, with the worktrees swapped."""
    unconfirmed: bool = False
    """A look said FAIL, and fresh launches did not show it."""
    calibration: CalibrationNote | None = None
    slots: tuple[SlotValue, ...] = ()
    duration_s: float = 0.0
