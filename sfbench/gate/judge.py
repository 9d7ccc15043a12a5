"""From pairs of slots to a report: the verdict, and the words for it. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sfbench import units
from sfbench.gate.arms import ArmName
from sfbench.gate.decision import (
    CONTROL_BAND,
    LOOKS,
    Decision,
    change,
    contaminated,
    decide,
    pairs_needed,
)
from sfbench.gate.model import (
    Estimate,
    GateOptions,
    GateReport,
    SideReport,
    SlotValue,
    Verdict,
)

SUSPECT_EFFICIENCY = 1.05
"""Above this the one-device rate is doubted, not the job admired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is compared."""

    target: str
    base_ref: str
    base_commit: str | None
    candidate_commit: str | None
    emulated: bool


def ratios(slots: Sequence[SlotValue]) -> list[float]:
    """Candidate over base of each whole pair, in the order of the pairs."""
    return [c.samples_per_s / b.samples_per_s for b, c in _pairs(slots)]


def control_ratios(slots: Sequence[SlotValue]) -> list[float]:
    """The same of the control, where both sides have it."""
    return [
        c.cached_samples_per_s / b.cached_samples_per_s
        for b, c in _pairs(slots)
        if b.cached_samples_per_s and c.cached_samples_per_s
    ]


def verdict_so_far(slots: Sequence[SlotValue], options: GateOptions) -> Verdict | None:
    """What the pairs say at a look; None = go on."""
    decision: Decision = decide(ratios(slots), options.margin)
    if decision == "continue":
        return None
    if contaminated(control_ratios(slots), options.control_band or CONTROL_BAND):
        return "contaminated"
    if decision == "pass" and _below_floor(slots, options):
        return "fail"
    return "pass" if decision == "pass" else "fail"


def verdict_at_end(slots: Sequence[SlotValue], options: GateOptions) -> Verdict:
    """What is said where no look decided before the budget was used."""
    if contaminated(control_ratios(slots), options.control_band or CONTROL_BAND):
        return "contaminated"
    return "inconclusive"


def report(
    subject: Subject,
    slots: Sequence[SlotValue],
    options: GateOptions,
    verdict: Verdict,
    *,
    confirmed: bool = False,
    duration_s: float = 0.0,
) -> GateReport:
    """The document of a gate that has measured at least one pair."""
    values = ratios(slots)
    base = _side(slots, "base", subject.base_commit, options)
    candidate = _side(slots, "candidate", subject.candidate_commit, options)
    moved = _estimate(values)
    return GateReport(
        verdict=verdict,
        headline=_headline(verdict, base, candidate, moved, options, len(values)),
        reasons=tuple(_reasons(verdict, base, candidate, options)),
        warnings=tuple(_warnings(base, candidate, subject)),
        target=subject.target,
        base_ref=subject.base_ref,
        devices=options.devices,
        emulated=subject.emulated,
        margin=options.margin,
        pairs=len(values),
        pairs_needed=_needed(verdict, values, options),
        change=moved,
        control=_estimate(control_ratios(slots)),
        base=base,
        candidate=candidate,
        confirmed=confirmed,
        slots=tuple(slots),
        duration_s=duration_s,
    )


def _pairs(slots: Sequence[SlotValue]) -> list[tuple[SlotValue, SlotValue]]:
    by_pair: dict[int, dict[ArmName, SlotValue]] = {}
    for slot in slots:
        by_pair.setdefault(slot.pair, {})[slot.arm] = slot
    whole = [by_pair[n] for n in sorted(by_pair) if len(by_pair[n]) == 2]
    return [(pair["base"], pair["candidate"]) for pair in whole]


def _below_floor(slots: Sequence[SlotValue], options: GateOptions) -> bool:
    side = _side(slots, "candidate", None, options)
    floor = options.min_efficiency
    return floor is not None and side.efficiency is not None and side.efficiency < floor


def _side(
    slots: Sequence[SlotValue], arm: ArmName, commit: str | None, options: GateOptions
) -> SideReport:
    mine = [slot for slot in slots if slot.arm == arm]
    rate = statistics.median(slot.samples_per_s for slot in mine)
    anchor = _median(slot.solo_samples_per_s for slot in slots if slot.arm == "base")
    return SideReport(
        commit=commit,
        samples_per_s=rate,
        efficiency=rate / (options.devices * anchor) if anchor else None,
        data_share=_median(slot.data_share for slot in mine),
        communication_share=_median(slot.communication_share for slot in mine),
        fetch_s_per_sample=_median(slot.fetch_s_per_sample for slot in mine),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _estimate(values: Sequence[float]) -> Estimate | None:
    if len(values) < 3:
        return None
    found = change(values)
    return Estimate(value=found.value, low=found.low, high=found.high)


def _needed(verdict: Verdict, values: Sequence[float], options: GateOptions) -> int | None:
    if verdict != "inconclusive" or len(values) < 3:
        return None
    return pairs_needed(values, options.margin)


_WORDS: dict[Verdict, str] = {
    "pass": "PASS",
    "fail": "REGRESSION",
    "inconclusive": "INCONCLUSIVE",
    "contaminated": "CONTAMINATED",
    "not-touched": "NOT TOUCHED",
}


def _headline(
    verdict: Verdict,
    base: SideReport,
    candidate: SideReport,
    moved: Estimate | None,
    options: GateOptions,
    pairs: int,
) -> str:
    interval = ""
    if moved is not None:
        interval = (
            f" ({100 * moved.value:+.0f} %, 95 % CI {100 * moved.low:+.0f} to "
            f"{100 * moved.high:+.0f}, {pairs} pairs)"
        )
    return (
        f"{_WORDS[verdict]}: {options.devices} devices {units.rate(base.samples_per_s)} -> "
        f"{units.rate(candidate.samples_per_s)} samples/s{interval}."
    )


def _reasons(
    verdict: Verdict, base: SideReport, candidate: SideReport, options: GateOptions
) -> list[str]:
    said = []
    if verdict == "contaminated":
        said.append(
            "The cached rung, which no pipeline change can move, moved as well: something else on "
            "this machine changed while it was measured, or the change is not one of the pipeline "
            "alone. Run again when the machine is quiet."
        )
    if verdict == "inconclusive":
        said.append(
            f"The interval still includes the margin of {100 * options.margin:.0f} %. Give more "
            f"--budget or a wider --margin (looks are after {', '.join(map(str, LOOKS))} pairs)."
        )
    if verdict == "fail":
        said.extend(_why(base, candidate))
        floor = options.min_efficiency
        if floor and candidate.efficiency is not None and candidate.efficiency < floor:
            said.append(
                f"Efficiency {units.percent(candidate.efficiency)} is below the floor of "
                f"{units.percent(floor)}."
            )
    return said


def _why(base: SideReport, candidate: SideReport) -> list[str]:
    if base.data_share is None or candidate.data_share is None:
        return []
    text = (
        f"Data loading went from {units.percent(base.data_share)} to "
        f"{units.percent(candidate.data_share)} of the step"
    )
    if base.fetch_s_per_sample and candidate.fetch_s_per_sample:
        text += (
            f" (seconds per sample of one worker {units.seconds(base.fetch_s_per_sample)} -> "
            f"{units.seconds(candidate.fetch_s_per_sample)})"
        )
    if base.communication_share is not None and candidate.communication_share is not None:
        text += (
            f"; communication {units.percent(base.communication_share)} -> "
            f"{units.percent(candidate.communication_share)}"
        )
    return [text + "."]


def _warnings(base: SideReport, candidate: SideReport, subject: Subject) -> list[str]:
    said = []
    if subject.emulated:
        said.append("emulated accelerator: these are no figures of a real device")
    for name, side in (("base", base), ("candidate", candidate)):
        if side.efficiency is not None and side.efficiency > SUSPECT_EFFICIENCY:
            said.append(
                f"{name}: efficiency {units.percent(side.efficiency)} is above 105 %: the "
                "one-device rate is suspect"
            )
    return said
