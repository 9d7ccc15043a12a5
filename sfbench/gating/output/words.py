"""A report's words: the headline, why, and what to be careful with. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sfbench.analyze.measured import SAME_BATCH
from sfbench.analyze.parts import COMMUNICATION, COMPUTE, DATA, PARTS, Part
from sfbench.common import units
from sfbench.common.units import things
from sfbench.gating.calibration_files import OLD_DAYS
from sfbench.gating.gate_report import CalibrationNote, GateReport, Rate, SideReport, Verdict
from sfbench.gating.statistics.decision import CONFIRM_PAIRS, LOOKS, MIN_VALUES
from sfbench.gating.statistics.judge import Asked

SUSPECT_EFFICIENCY = 1.05
"""Above this the one-device rate is doubted, not the job admired."""
GREW = 0.02
"""A part that changed by less than this ratio of the base's step is called unchanged."""
MOST_NAMED = 3
"""Files that a warning names."""

TITLES: dict[Verdict, str] = {
    "pass": "PASS",
    "fail": "REGRESSION",
    "inconclusive": "INCONCLUSIVE",
    "contaminated": "CONTAMINATED",
    "not-touched": "NOT TOUCHED",
    "broken": "BROKEN",
    "not-measured": "NOT MEASURED",
}


def headline(report: GateReport) -> str:
    """``REGRESSION: 8 devices 2560 -> 1970 samples/s (-23 %, 95 % CI -26 to -20, 8 pairs).``"""
    title = f"{TITLES[report.verdict]}: {_devices(report.devices)}"
    if report.base is None or report.candidate is None:
        return f"{TITLES[report.verdict]}: {report.target} against {report.against}."
    rates = (
        f"{units.rate(report.base.samples_per_s)} -> {units.rate(report.candidate.samples_per_s)}"
    )
    return f"{title} {rates} samples/s{_interval(report)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What the words need beside the report."""

    shifted: bool
    """The control's level shifted in time."""
    unsettled: Mapping[Asked, int | None]
    """Open questions, and how many pairs each would need (None: no practical number)."""
    stopped: str | None
    """Why no more was measured."""


def reasons(report: GateReport, ending: Ending) -> Iterator[str]:
    """Why it is so, and what to do."""
    if report.verdict == "contaminated":
        yield _contaminated(report, shifted=ending.shifted)
    if report.verdict == "inconclusive":
        yield ending.stopped or _inconclusive(report, ending.unsettled)
    yield from _floor(report)
    if report.verdict == "fail":
        yield from _why(report)


def warnings(
    report: GateReport, *, stale_base: bool, only_read: Sequence[str] = ()
) -> Iterator[str]:
    """What a reader of the numbers must know.

    ``only_read``: changed files that a script may read, if both sides imported the same code.
    """
    if report.emulated:
        yield "emulated accelerator: its layers take a set time, these are no figures of a device"
    if report.oversubscribed:
        yield "oversubscribed: the devices share cores, so figures depend on all else that runs"
    if stale_base:
        yield (
            f"{report.against} has commits that the working tree does not contain: what they "
            "gained counts against the candidate. Merge them, or give their common ancestor as "
            "--base"
        )
    if only_read:
        yield (
            f"both sides imported the same code: the change is in {_names(only_read)}, which the "
            "script may read"
        )
    if report.control is None and report.pairs >= MIN_VALUES:
        yield "no control: the cached rung could not run, so a moving machine would not be noticed"
    yield from _unlike(report)
    yield from _suspect(report)
    yield from _calibration(report)


def _printable(path: str) -> str:
    """A file name may hold line ends, or bytes that are no text: neither fits into a report."""
    return "".join(char if char.isprintable() else "\ufffd" for char in path)


def _names(paths: Sequence[str]) -> str:
    """``a.yaml, b.csv, c.csv and 2 more files``."""
    named = [_printable(path) for path in paths[:MOST_NAMED]]
    more = len(paths) - len(named)
    if more:
        return f"{', '.join(named)} and {more} more file{'' if more == 1 else 's'}"
    return units.listed(named)


def _devices(count: int) -> str:
    return things(count, "device")


def _interval(report: GateReport) -> str:
    if report.change is None:
        return ""
    value, low, high = (
        f"{100 * ratio:+.0f}"
        for ratio in (report.change.value, report.change.low, report.change.high)
    )
    return f" ({value} %, 95 % CI {low} to {high}, {_pairs(report.pairs)})"


def _contaminated(report: GateReport, *, shifted: bool) -> str:
    if shifted:
        return (
            "The machine changed its speed while it was measured: the cached rung, which loads no "
            "data, shifted and stayed there. Run again when the machine is quiet."
        )
    by = "" if report.control is None else f" by {100 * report.control.value:+.0f} %"
    return (
        f"The cached rung, which loads no data, differs between the sides{by}. Either the change "
        "is not in the data pipeline alone (model, batch, communication), which this gate cannot "
        "judge and no repetition helps: compare two sweeps instead. Or something else on this "
        "machine changed: then another run differs."
    )


def _inconclusive(report: GateReport, unsettled: Mapping[Asked, int | None]) -> str:
    if report.unconfirmed:
        return (
            f"The first {report.pairs - CONFIRM_PAIRS} pairs showed a regression, and "
            f"{CONFIRM_PAIRS} fresh ones with the checkouts swapped did not: it is noise, or the "
            "change is near to the limit. Run again, on a quieter machine if there is one."
        )
    if report.pairs < LOOKS[0]:
        return (
            f"The budget allowed {_pairs(report.pairs)}, and {LOOKS[0]} are the least that support "
            f"a verdict: give --budget {_budget(report, LOOKS[0])} or more."
        )
    if not unsettled:
        known = report.candidate is not None and report.candidate.efficiency is not None
        return NO_LOOK if known or report.min_efficiency is None else NO_FLOOR
    limits = " and ".join(_limit(report, asked) for asked in unsettled)
    return f"The interval still includes {limits}. {_needed(report, unsettled)}"


NO_FLOOR = (
    "The base's one-device rate could not be measured, so nothing is known about the floor for "
    "efficiency."
)
NO_LOOK = "The budget ended between two looks, though the figures are clear by now: run again."


def _limit(report: GateReport, asked: Asked) -> str:
    if asked == "efficiency":
        return f"the floor of {units.percent(report.min_efficiency)} for efficiency"
    return f"the margin of {units.percent(report.margin)}"


def _needed(report: GateReport, unsettled: Mapping[Asked, int | None]) -> str:
    """What would settle it."""
    easier = "--min-efficiency" if "efficiency" in unsettled else "--margin"
    if report.pairs_needed is None or report.pairs_needed > LOOKS[-1]:
        return (
            f"With noise like this more than {LOOKS[-1]} pairs would be needed, the most that are "
            f"measured: choose another {easier}, or free the machine of other work."
        )
    look = next(look for look in LOOKS if look >= report.pairs_needed)
    return (
        f"With noise like this about {things(report.pairs_needed, 'pair')} are needed: give "
        "--budget "
        f"{_budget(report, look)}, another {easier}, or a quieter machine."
    )


def _budget(report: GateReport, pairs: int) -> str:
    """Seconds in which so many pairs and a confirmation fit; the first two take longer."""
    return str(10 * int(report.pair_s * (pairs + CONFIRM_PAIRS + 1) // 10 + 1))


def _pairs(count: int) -> str:
    return things(count, "pair")


def _floor(report: GateReport) -> Iterator[str]:
    side, floor = report.candidate, report.min_efficiency
    if floor is None or side is None or side.efficiency is None:
        return
    if side.efficiency < floor:
        yield (
            f"Efficiency {units.percent(side.efficiency)} is below the floor of "
            f"{units.percent(floor)}."
        )


def _why(report: GateReport) -> Iterator[str]:
    """Which part of the step grew; the others in a word."""
    base, candidate = report.base, report.candidate
    if base is None or candidate is None:
        return
    changes = _changes(base, candidate)
    grew = [part for part, by in changes.items() if by.value > max(GREW, by.half_width)]
    grew.sort(key=lambda part: -changes[part].value)
    said = [_grew(part, base, candidate) for part in grew]
    same = [part.label for part in _NAMED if part in changes and changes[part].none]
    if same:
        said.append(f"{units.listed(same)} unchanged")
    if not grew:
        said.append(UNTOLD)
    sentence = "; ".join(said)
    yield f"{sentence[0].upper()}{sentence[1:]}."


UNTOLD = "could not identify which part of the step got slower: the time shares are too uncertain"
"""A regression is one without its cause as well."""
_NAMED = (DATA, COMMUNICATION, COMPUTE)
"""Parts worth a word if they did not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """By how much the time per sample of a part grew, as a ratio of the base's whole."""

    value: float
    half_width: float

    @property
    def none(self) -> bool:
        """Small, and known to be small."""
        return abs(self.value) <= GREW and self.half_width <= 2 * GREW


def _changes(base: SideReport, candidate: SideReport) -> dict[Part, _Change]:
    """Of the parts that both sides have measured. Noise may put a part below nothing: it is 0."""
    slower = base.samples_per_s / candidate.samples_per_s
    changes = {}
    for part in PARTS:
        before, after = base.parts.get(part.id), candidate.parts.get(part.id)
        if before is None or after is None:
            continue
        changes[part] = _Change(
            value=max(after, 0.0) * slower - max(before, 0.0),
            half_width=math.hypot(_wide(base, part), _wide(candidate, part) * slower),
        )
    return changes


def _wide(side: SideReport, part: Part) -> float:
    """Without an interval nothing is known of a part."""
    half = side.parts_half_width.get(part.id)
    return math.inf if half is None else half


def _grew(part: Part, base: SideReport, candidate: SideReport) -> str:
    before, after = max(_share(part, base), 0.0), _share(part, candidate)
    told = max(_wide(base, part), _wide(candidate, part)) <= units.UNKNOWN_HALF
    if after <= before:  # what has grown is above 0, and so is what it has grown from here
        times = after / before * base.samples_per_s / candidate.samples_per_s
        longer = f"{times:.2g} times as long" if told else "longer"
        return f"{part.label} {part.takes} {longer} per sample"
    sizes = f" from {units.percent(before)} to {units.percent(after)} of the step" if told else ""
    text = f"{part.label} grew{sizes}"
    if part is DATA and base.fetch_s_per_sample and candidate.fetch_s_per_sample:
        text += (
            f" (seconds per sample {units.seconds(base.fetch_s_per_sample)} -> "
            f"{units.seconds(candidate.fetch_s_per_sample)})"
        )
    return text


def _share(part: Part, side: SideReport) -> float:
    """Of a part that is known to have been measured."""
    share = side.parts[part.id]
    assert share is not None
    return share


def _unlike(report: GateReport) -> Iterator[str]:
    """The control and efficiency are of steps: they compare only if steps are alike."""
    base, candidate = report.base, report.candidate
    if base is None or candidate is None:
        return
    before, after = base.samples_per_step, candidate.samples_per_step
    if before and after and not math.isclose(before, after, rel_tol=SAME_BATCH):
        yield (
            f"a step takes {units.count(before)} samples in the base and {units.count(after)} in "
            "the candidate: neither control nor efficiency compare"
        )


def _suspect(report: GateReport) -> Iterator[str]:
    for name, side in (("base", report.base), ("candidate", report.candidate)):
        if side is not None and (side.efficiency or 0.0) > SUSPECT_EFFICIENCY:
            yield (
                f"{name}: efficiency {units.percent(side.efficiency)} is above "
                f"{units.percent(SUSPECT_EFFICIENCY)}: the one-device rate is suspect"
            )


def _calibration(report: GateReport) -> Iterator[str]:
    note = report.calibration
    if note is None:
        yield (
            "not calibrated on this machine: `sfbench gate calibrate` tells what it can and "
            "cannot detect"
        )
    elif note.age_days > OLD_DAYS:
        yield (
            f"the calibration of this machine is {note.age_days:.0f} days old: run "
            "`sfbench gate calibrate` again"
        )
    if note is not None:
        yield from _other_options(report, note)


def _other_options(report: GateReport, note: CalibrationNote) -> Iterator[str]:
    """If the quoted rates are those of a gate with other options."""
    asked = (f"{100 * report.margin:g}%", f"{report.budget_s:g}")
    held = (f"{100 * note.margin:g}%", f"{note.budget_s:g}")
    told = [
        f"--{name} {holds}, not {asks}"
        for name, holds, asks in zip(("margin", "budget"), held, asked, strict=True)
        if holds != asks
    ]
    if told:
        yield (
            f"the calibration holds for {' and '.join(told)}: run `sfbench gate calibrate` with "
            "the options of the gate"
        )


def calibrated(report: GateReport) -> str | None:
    """``Calibrated 3 days ago at a margin of 8%: false FAIL 0% (at most 0.1%), …``"""
    note = report.calibration
    if note is None:
        return None
    caught = (
        "no slow-down is caught for certain"
        if note.caught is None
        else f"a slow-down of {units.percent(note.caught)} is caught in 95 of 100 runs"
    )
    age = f"{note.age_days:.0f} day{'' if round(note.age_days) == 1 else 's'}"
    return (
        f"Calibrated {age} ago at a margin of {units.percent(note.margin)} and a budget of "
        f"{note.budget_s:.0f} s: false FAIL {rate(note.false_fail)}, {caught}."
    )


def rate(of: Rate) -> str:
    """``0.00 % (at most 0.07 %, 4000 draws)``."""
    return f"{100 * of.value:.2f} % (at most {100 * of.upper:.2f} %, {of.draws} draws)"
