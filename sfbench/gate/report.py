"""From a comparison to its report, and reports of gates that measured nothing. Pure."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from sfbench.gate.decision import Centre, estimate, pairs_needed
from sfbench.gate.judge import Judge, median
from sfbench.gate.loop import Compared
from sfbench.gate.model import (
    ArmName,
    CalibrationNote,
    Estimate,
    GateOptions,
    GateReport,
    Parts,
    SideReport,
    SlotValue,
    Verdict,
)
from sfbench.gate.stored import Stored
from sfbench.gate.words import headline, reasons, warnings


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What launches showed beside their rates."""

    base: Parts
    candidate: Parts
    emulated: bool = False
    oversubscribed: bool = False


def compared_report(
    subject: Subject,
    judge: Judge,
    compared: Compared,
    seen: Seen,
    *,
    stored: Stored | None = None,
    calibration: CalibrationNote | None = None,
) -> GateReport:
    """The document of a gate that has measured at least one pair."""
    options, slots = judge.options, compared.slots
    base, candidate = _sides(subject, options.devices, slots, seen, stored)
    report = replace(
        _blank(subject, options, compared.verdict),
        emulated=seen.emulated,
        oversubscribed=seen.oversubscribed,
        pairs=len({slot.pair for slot in slots}),
        pairs_needed=_pairs_needed(judge, compared),
        pair_s=compared.pair_s,
        change=_estimate(judge.evidence.change(slots)),
        control=_estimate(judge.evidence.control(slots)),
        base=base,
        candidate=candidate,
        confirmed=compared.confirmed,
        calibration=calibration,
        slots=slots,
    )
    return replace(
        report,
        headline=headline(report),
        reasons=tuple(reasons(report, shifted=judge.shifted(slots))),
        warnings=tuple(warnings(report, stale_base=subject.stale_base)),
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
    devices: int,
    slots: Sequence[SlotValue],
    seen: Seen,
    stored: Stored | None,
) -> tuple[SideReport, SideReport]:
    if stored is None:
        anchor = median([s.solo_samples_per_s for s in slots if s.arm == "base"])
        base = _side(slots, "base", subject.base_commit, seen.base)
    else:
        anchor = stored.solo_samples_per_s
        base = SideReport(
            commit=stored.commit,
            samples_per_s=statistics.median(stored.rates),
            parts=stored.parts,
        )
    candidate = _side(slots, "candidate", subject.candidate_commit, seen.candidate)
    return _anchored(base, devices, anchor), _anchored(candidate, devices, anchor)


def _side(slots: Sequence[SlotValue], arm: ArmName, commit: str | None, parts: Parts) -> SideReport:
    mine = [slot for slot in slots if slot.arm == arm]
    return SideReport(
        commit=commit,
        samples_per_s=statistics.median(slot.samples_per_s for slot in mine),
        parts=parts,
        fetch_s_per_sample=median([slot.fetch_s_per_sample for slot in mine]),
    )


def _anchored(side: SideReport, devices: int, anchor: float | None) -> SideReport:
    if anchor is None:
        return side
    return replace(side, efficiency=side.samples_per_s / (devices * anchor))


def _estimate(at: Centre | None) -> Estimate | None:
    return None if at is None else estimate(at)


def _pairs_needed(judge: Judge, compared: Compared) -> int | None:
    """The most that any of the open questions needs; None also where one needs too many."""
    questions = judge.questions(compared.slots)
    if compared.verdict != "inconclusive" or not questions:
        return None
    needed = [pairs_needed(question.at, question.limit) for question in questions]
    known = [pairs for pairs in needed if pairs is not None]
    return max(known) if len(known) == len(needed) else None
