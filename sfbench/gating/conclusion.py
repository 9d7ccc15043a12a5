"""From a comparison to its report, and reports of gates that measured nothing. Pure."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypedDict

from sfbench.gating.gate_report import (
    ArmName,
    CalibrationNote,
    Estimate,
    GateOptions,
    GateReport,
    Parts,
    SideReport,
    SlotValue,
    Verdict,
    nothing_measured,
)
from sfbench.gating.output.words import Ending, headline, reasons, warnings
from sfbench.gating.statistics.decision import (
    MIN_VALUES,
    Centre,
    centre,
    estimate,
    level,
    pairs_needed,
)
from sfbench.gating.statistics.judge import Asked, Judge, median
from sfbench.gating.statistics.loop import Compared
from sfbench.gating.stored import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is compared with what."""

    target: str
    script_args: tuple[str, ...] = ()
    against: str
    """The base's git name, or the stored result's name."""
    base_commit: str | None = None
    candidate_commit: str | None = None
    stale_base: bool = False
    """The base has commits that the candidate does not contain."""
    only_read: tuple[str, ...] = ()
    """If both sides imported the same code: changed files that the script may read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidesParts:
    """What launches showed beside their rates."""

    base: Parts
    candidate: Parts
    base_half_width: Parts = field(default_factory=nothing_measured)
    """Of the parts' intervals."""
    candidate_half_width: Parts = field(default_factory=nothing_measured)
    base_samples_per_step: float | None = None
    candidate_samples_per_step: float | None = None
    emulated: bool = False
    oversubscribed: bool = False


def compared_report(
    subject: Subject,
    judge: Judge,
    compared: Compared,
    seen: SidesParts,
    *,
    stored: Stored | None = None,
    calibration: CalibrationNote | None = None,
) -> GateReport:
    """The document of a gate that has measured at least one pair."""
    options, slots = judge.options, compared.slots
    base, candidate = _sides(subject, judge, slots, seen, stored)
    ending = Ending(
        shifted=judge.shifted(slots),
        unsettled=_unsettled(judge, compared),
        stopped=compared.stopped,
    )
    report = replace(
        _blank(subject, options, compared.verdict),
        emulated=seen.emulated,
        oversubscribed=seen.oversubscribed,
        pairs=len({slot.pair for slot in slots}),
        pairs_needed=_most(ending.unsettled.values()),
        pair_s=compared.pair_s,
        change=_estimate(judge.evidence.change(slots)),
        control=_estimate(judge.evidence.control(slots)),
        base=base,
        candidate=candidate,
        confirmed=compared.confirmed,
        unconfirmed=compared.unconfirmed,
        calibration=calibration,
        slots=slots,
    )
    return replace(
        report,
        headline=headline(report),
        reasons=tuple(reasons(report, ending)),
        warnings=tuple(
            warnings(report, stale_base=subject.stale_base, only_read=subject.only_read)
        ),
    )


def to_json(report: GateReport) -> str:
    """The document of ``gate --json``."""
    return json.dumps(asdict(report), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def unmeasured_report(
    subject: Subject, options: GateOptions, verdict: Verdict, reason: str
) -> GateReport:
    """The document of a gate without figures: not touched, broken, not measured."""
    report = _blank(subject, options, verdict)
    return replace(report, headline=headline(report), reasons=(reason,))


def _blank(subject: Subject, options: GateOptions, verdict: Verdict) -> GateReport:
    return GateReport(
        verdict=verdict,
        headline="",
        target=subject.target,
        script_args=subject.script_args,
        against=subject.against,
        devices=options.devices,
        margin=options.margin,
        budget_s=options.budget_s,
        min_efficiency=options.min_efficiency,
    )


def _sides(
    subject: Subject,
    judge: Judge,
    slots: Sequence[SlotValue],
    seen: SidesParts,
    stored: Stored | None,
) -> tuple[SideReport, SideReport]:
    mine: dict[ArmName, list[SlotValue]] = {
        arm: [slot for slot in slots if slot.arm == arm] for arm in ("base", "candidate")
    }
    known = [slot.solo_samples_per_s for slot in mine["base"]]
    anchor = median(known) if stored is None else stored.solo_samples_per_s
    ideal = None if anchor is None else judge.options.devices * anchor
    rates = stored.rates if stored else [slot.samples_per_s for slot in mine["base"]]
    base = SideReport(
        commit=stored.commit if stored else subject.base_commit,
        parts=stored.parts if stored else seen.base,
        parts_half_width=stored.parts_half_width if stored else seen.base_half_width,
        fetch_s_per_sample=median([slot.fetch_s_per_sample for slot in mine["base"]]),
        samples_per_step=seen.base_samples_per_step,
        **_figures(rates, _ratios(rates, ideal)),
    )
    rates = [slot.samples_per_s for slot in mine["candidate"]]
    own = judge.evidence.efficiency(slots)
    candidate = SideReport(
        commit=subject.candidate_commit,
        parts=seen.candidate,
        parts_half_width=seen.candidate_half_width,
        fetch_s_per_sample=median([slot.fetch_s_per_sample for slot in mine["candidate"]]),
        samples_per_step=seen.candidate_samples_per_step,
        **_figures(rates, _ratios(rates, ideal) if own is None else level(own)),
    )
    return base, candidate


class _Figures(TypedDict):
    samples_per_s: float
    samples_per_s_interval: Estimate | None
    efficiency: float | None
    efficiency_interval: Estimate | None


def _figures(rates: Sequence[float], efficiency: Estimate | float | None) -> _Figures:
    """A number alone is one that too few launches stand behind for an interval."""
    rate = _mean(rates)
    return _Figures(
        samples_per_s=rate.value if isinstance(rate, Estimate) else rate,
        samples_per_s_interval=rate if isinstance(rate, Estimate) else None,
        efficiency=efficiency.value if isinstance(efficiency, Estimate) else efficiency,
        efficiency_interval=efficiency if isinstance(efficiency, Estimate) else None,
    )


def _ratios(rates: Sequence[float], ideal: float | None) -> Estimate | float | None:
    return None if ideal is None else _mean([rate / ideal for rate in rates])


def _mean(values: Sequence[float]) -> Estimate | float:
    """Trimmed mean, as of what is decided by; of fewer than it takes, the median alone."""
    if len(values) < MIN_VALUES:
        return statistics.median(values)
    return level(centre([math.log(value) for value in values]))


def _estimate(at: Centre | None) -> Estimate | None:
    return None if at is None else estimate(at)


def _unsettled(judge: Judge, compared: Compared) -> dict[Asked, int | None]:
    """Of an inconclusive gate the open questions, and the pairs that each needs, if that helps."""
    if compared.verdict != "inconclusive":
        return {}
    return {q.asked: pairs_needed(q.at, q.limit) for q in judge.unsettled(compared.slots)}


def _most(needed: Iterable[int | None]) -> int | None:
    """The most that any question needs; None also if one needs too many."""
    known = list(needed)
    whole = [pairs for pairs in known if pairs is not None]
    return max(whole) if whole and len(whole) == len(known) else None
