"""What the gate measures and says.

Pure values; ``GateReport`` is the document of ``gate --json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sfbench.gate.arms import ArmName
from sfbench.schema import SweepResult

GATE_SCHEMA = 1

Verdict = Literal["pass", "fail", "inconclusive", "contaminated", "not-touched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What a person asks of the gate."""

    devices: int
    margin: float = 0.08
    """A candidate slower by more than this ratio fails."""
    budget_s: float = 180.0
    """Wall time for all pairs."""
    seconds: float = 5.0
    """Measuring budget of one launch."""
    min_efficiency: float | None = None
    """An absolute floor for the candidate's efficiency."""
    control_band: float | None = None
    """From calibration; None = the default."""
    seed: int = 20_260


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotValue:
    """One launch of one side: medians over its blocks after warmup."""

    arm: ArmName
    pair: int
    samples_per_s: float
    cached_samples_per_s: float | None
    """The control: no pipeline change can move it."""
    solo_samples_per_s: float | None
    """One device by itself: what efficiency is anchored to."""
    data_share: float | None
    communication_share: float | None
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
    """One side over all pairs."""

    commit: str | None
    samples_per_s: float
    """Median over pairs."""
    efficiency: float | None
    """samples_per_s / (devices x the base's one-device rate)."""
    data_share: float | None
    communication_share: float | None
    fetch_s_per_sample: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """Verdict of a gate with what it rests on."""

    schema: int = GATE_SCHEMA
    verdict: Verdict
    headline: str
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    target: str
    base_ref: str
    devices: int
    emulated: bool = False
    margin: float
    pairs: int = 0
    pairs_needed: int | None = None
    change: Estimate | None = None
    """Candidate's samples_per_s over the base's, minus one."""
    control: Estimate | None = None
    """The same of the cached rung."""
    base: SideReport | None = None
    candidate: SideReport | None = None
    confirmed: bool = False
    """A FAIL was seen again in fresh launches with the worktrees swapped."""
    slots: tuple[SlotValue, ...] = ()
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOutcome:
    """The report, and both sides as sweep results for the HTML page."""

    report: GateReport
    base: SweepResult | None = None
    candidate: SweepResult | None = None
