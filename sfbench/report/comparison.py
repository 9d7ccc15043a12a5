"""Two results side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sfbench.analyze.parts import PARTS, Part
from sfbench.common import units
from sfbench.common.schema import Interval, Point, SweepResult
from sfbench.common.units import things
from sfbench.plan.options import GateSettings

_SAME = ("host", "cpu", "cores", "gpus", "threads_per_device", "torch", "backend")
"""What two results share if they can be compared."""

_ONE_MACHINE = ("host", "cpu", "cores", "gpus", "threads_per_device")
_OF_GPUS = ("gpu_driver", "gpu_power_limits_w", "nccl")
"""The same of results on accelerators."""
MARGIN: float = GateSettings.model_fields["margin"].default
"""If a result may be slower by more than this, and is not seen to be, nothing is decided."""

FASTER, SLOWER, FAILED_NOW = "faster", "slower", "failed now"
UNCHANGED, VAGUE = "no clear change", "not known well enough"
SEEN = 0.005
"""A part that changed by less than this ratio of the step is not named."""
Outcome = Literal["good", "regression", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """One device count in both results."""

    devices: int
    before: Interval | None
    """samples/s."""
    after: Interval | None
    change: Interval | None
    """After over before."""
    rate_before: str
    rate_after: str
    rate_change: str
    efficiency_before: str
    efficiency_after: str
    verdict: str
    """faster | slower | failed now | no clear change | not known well enough | –"""
    note: str
    """What must be said of either side: failed, oversubscribed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPart:
    """One part of the step at one device count in both results, in seconds of the step."""

    devices: int
    part: str
    before: str
    after: str
    change: str
    """What it adds to or takes from the step."""
    moved: bool
    """Whether that is as much as its text can tell from nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A result beside its baseline."""

    baseline: str
    rows: tuple[ComparedRow, ...]
    parts: tuple[ComparedPart, ...]
    """Of the largest device count that both have, the biggest change first."""
    differences: tuple[str, ...]
    """Why the two may not be comparable."""
    same_machine: bool
    """One machine and one way to scale."""
    same_script: bool
    """Of one name, wherever it lies: what is in it may differ, that is what is compared. Rates of
    the two compare only if both are true."""
    outcome: Outcome
    summary: str
    """The rows in a sentence, the largest count first."""


def compare(result: SweepResult, baseline: SweepResult) -> Comparison:
    """Compare at each device count of either."""
    before = {p.devices: p for p in baseline.points}
    after = {p.devices: p for p in result.points}
    counts = sorted(before.keys() | after.keys())
    rows = tuple(_row(n, before.get(n), after.get(n)) for n in counts)
    machine, script = _same_machine(result, baseline), _same_script(result, baseline)
    same = machine and script
    return Comparison(
        baseline=baseline.name,
        rows=rows,
        parts=tuple(_parts(before, after)),
        differences=tuple(_differences(result, baseline)),
        same_machine=machine,
        same_script=script,
        outcome=_outcome({row.verdict for row in rows}) if same else "undecided",
        summary=_summary(rows, machine=machine, script=script),
    )


def _summary(rows: Sequence[ComparedRow], *, machine: bool, script: bool) -> str:
    """``8 devices slower (-20% ±1), 4 devices no clear change (+0% ±6).``"""
    if not script:
        return "measured on two scripts: rates do not compare."
    if not machine:
        return "measured on two machines, or in two ways to scale: rates do not compare."
    said = [
        f"{things(row.devices, 'device')} {row.verdict}"
        + (f" ({row.rate_change})" if row.change is not None else "")
        for row in reversed(rows)
        if row.verdict != units.MISSING
    ]
    return f"{', '.join(said)}." if said else "no device count was measured in both."


def _outcome(verdicts: set[str]) -> Outcome:
    if verdicts & {SLOWER, FAILED_NOW}:
        return "regression"
    return "good" if verdicts & {FASTER, UNCHANGED} and VAGUE not in verdicts else "undecided"


def _same_machine(result: SweepResult, baseline: SweepResult) -> bool:
    here, there = result.environment, baseline.environment
    names = (*_ONE_MACHINE, *(("gpu_power_limits_w",) if _on_gpus(result, baseline) else ()))
    return all(getattr(here, name) == getattr(there, name) for name in names) and (
        (result.device_type, result.scaling, result.emulated)
        == (baseline.device_type, baseline.scaling, baseline.emulated)
    )


def _same_script(result: SweepResult, baseline: SweepResult) -> bool:
    return Path(result.target).name == Path(baseline.target).name


def _on_gpus(result: SweepResult, baseline: SweepResult) -> bool:
    return "cpu" not in (result.device_type, baseline.device_type)


def rate_change(after: Interval, before: Interval) -> Interval:
    """Ratio of two independent rates.

    Half-widths of the logarithms add in squares: exact for equal degrees of freedom, and close
    enough to read by. A regression is decided by measuring side by side, not from two files.
    """
    value = after.value / before.value
    halves = [_log_half(after), _log_half(before)]
    known = [half for half in halves if half is not None]
    if len(known) < len(halves):
        return Interval(value=value, low=None, high=None)
    factor = math.exp(math.hypot(*known))
    return Interval(value=value, low=value / factor, high=value * factor)


def _log_half(interval: Interval) -> float | None:
    if interval.low is None or interval.high is None or interval.low <= 0:
        return None
    return math.log(interval.high / interval.low) / 2


def _row(devices: int, before: Point | None, after: Point | None) -> ComparedRow:
    change = None
    if before and after and before.samples_per_s and after.samples_per_s:
        change = rate_change(after.samples_per_s, before.samples_per_s)
    return ComparedRow(
        devices=devices,
        before=before.samples_per_s if before else None,
        after=after.samples_per_s if after else None,
        change=change,
        rate_before=units.rate_interval(before.samples_per_s if before else None),
        rate_after=units.rate_interval(after.samples_per_s if after else None),
        rate_change=units.MISSING if change is None else units.change(change),
        efficiency_before=units.percent_interval(before.efficiency if before else None),
        efficiency_after=units.percent_interval(after.efficiency if after else None),
        verdict=_verdict(change, broken=_is(before, "ok") and _is(after, "failed", "timeout")),
        note=", ".join(_notes(before, after)),
    )


def _parts(before: Mapping[int, Point], after: Mapping[int, Point]) -> list[ComparedPart]:
    both = [n for n in before.keys() & after.keys() if before[n].step_s and after[n].step_s]
    if not both:
        return []
    devices = max(both)
    one, other = _part_s(before[devices]), _part_s(after[devices])
    common = sorted(one.keys() & other.keys(), key=lambda part: -abs(other[part] - one[part]))
    return [
        ComparedPart(
            devices=devices,
            part=part.label,
            before=units.seconds(one[part]),
            after=units.seconds(other[part]),
            change=_signed_seconds(other[part] - one[part]),
            moved=abs(other[part] - one[part]) >= SEEN * max(sum(one.values()), 1e-9),
        )
        for part in common
    ]


def _part_s(point: Point) -> dict[Part, float]:
    """Seconds of the step that each part takes, if that is known."""
    if point.time_share is None or point.step_s is None:
        return {}
    shares = {part: point.time_share.of(part.id) for part in PARTS}
    return {
        part: share.value * point.step_s.value
        for part, share in shares.items()
        if share.value is not None and units.is_known(share)
    }


def _signed_seconds(value: float) -> str:
    return f"{'+' if value > 0 else ''}{units.seconds(value)}"


def _is(point: Point | None, *statuses: str) -> bool:
    return point is not None and point.status in statuses


def _verdict(change: Interval | None, *, broken: bool) -> str:
    if broken:
        return FAILED_NOW
    if change is None or change.low is None or change.high is None:
        return units.MISSING
    if change.low > 1:
        return FASTER
    if change.high < 1:
        return SLOWER
    return UNCHANGED if change.low > 1 - MARGIN else VAGUE


def _notes(before: Point | None, after: Point | None) -> Iterator[str]:
    for side, point in (("baseline", before), ("this", after)):
        if point is None:
            yield f"{side}: not measured"
        elif point.status != "ok":
            yield f"{side}: {'hung' if point.status == 'timeout' else 'failed'}"
        elif point.oversubscribed:
            yield f"{side}: oversubscribed"


def _differences(result: SweepResult, baseline: SweepResult) -> Iterator[str]:
    for name in ("target", "script_args", "device_type", "scaling", "emulated"):
        here, there = getattr(result, name), getattr(baseline, name)
        if here != there:
            yield f"{name.replace('_', ' ')}: {_shown(there)} before, {_shown(here)} now"
    for name in (*_SAME, *(_OF_GPUS if _on_gpus(result, baseline) else ())):
        here, there = getattr(result.environment, name), getattr(baseline.environment, name)
        if here != there:
            yield f"{name.replace('_', ' ')}: {_shown(there)} before, {_shown(here)} now"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
