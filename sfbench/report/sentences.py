"""What a result says, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sfbench.analyze.losses import is_told, losses
from sfbench.analyze.parts import COMPUTE, PARTS, STRAGGLER, Part
from sfbench.common import units
from sfbench.common.schema import Diagnosis, Interval, Point, SweepResult, TimeShare
from sfbench.common.units import things
from sfbench.report.goodput import goodput_line
from sfbench.report.result_rows import is_unknown, worst_point
from sfbench.report.topology import topology_lines

MENTIONED = 0.005
"""Parts that lose less than half a point are not named."""
UNCERTAIN = 0.10
"""An efficiency known no better than this many points says nothing of what is lost."""
WORKING = 0.9
"""One device that computes for less of its step has something to fix before scaling."""

MOST_OF_IT = 0.5
"""A part that takes less of what one device loses is not named as its cause."""
NOT_COMPARABLE = "not comparable"
"""How a warning begins without which no figure of its point can be read."""
LARGER_BATCH = "small-batch"
SURE = 0.01
"""What may give back less than a point is not the first thing to do."""
FIX_FIRST = "Fix first: "
"""What the sentence of the first fix begins with."""
EMULATED = (
    "Emulated accelerator: its layers take a set time. The figures show how the loop scales, "
    "not how fast a real device is."
)


def verdict(result: SweepResult) -> tuple[str, ...]:
    """The sentences below the table, most important first; each stands by itself."""
    one = next((p for p in result.points if p.devices == 1), None)
    return tuple(
        [
            *_scaling(result, one),
            *topology_lines(result),
            *_unknown_shares(result),
            *_one_device(one),
            *_fix_first(result),
            *_failures(result),
            *filter(None, [goodput_line(result)]),
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LineBelow:
    """One of the lines below the table."""

    kind: str
    """emulated | verdict | fix | check | warning"""
    text: str


def lines_below(result: SweepResult) -> Iterator[LineBelow]:
    """All that stands below the table, wherever that is shown."""
    if result.emulated:
        yield LineBelow(kind="emulated", text=EMULATED)
    warned = [(p, warning) for p in result.points for warning in p.warnings]
    # Without these no figure can be read: the verdict comes after them.
    first = [one for one in warned if one[1].startswith(NOT_COMPARABLE)]
    yield from (_warning(*one) for one in first)
    for sentence in (*oversubscribed(result), *verdict(result)):
        yield LineBelow(kind="fix" if sentence.startswith(FIX_FIRST) else "verdict", text=sentence)
    for check in result.checks:
        if check.status in {"fail", "warn"}:
            yield LineBelow(
                kind="check", text=f"Check {check.id}: {check.status}. {check.evidence}"
            )
    for warning in result.warnings:
        yield LineBelow(kind="warning", text=f"Warning: {warning}")
    yield from (_warning(*one) for one in warned if one not in first)


def _warning(point: Point, text: str) -> LineBelow:
    return LineBelow(kind="warning", text=f"Warning: {_devices(point)}: {text}")


def headline(result: SweepResult) -> str:
    """The one sentence that the report opens with."""
    best = max((p.devices for p in result.points if p.efficiency is not None), default=None)
    point = next((p for p in result.points if p.devices == best), None)
    if point is None or point.efficiency is None:
        measured = [p for p in result.points if p.status == "ok"]
        if not measured:
            return "Nothing could be measured."
        return f"{_devices(measured[-1])} measured; there is no figure at 1 device to compare with."
    failed = [p for p in result.points if p.status != "ok"]
    if point.devices == 1 and failed:
        return f"{_devices(failed[-1])} failed: only 1 device could be measured."
    if point.devices == 1:
        return "1 device measured: add device counts to see how it scales."
    return f"{things(point.devices, 'device')}{_reached(point, point.efficiency)}"


def _reached(point: Point, efficiency: Interval) -> str:
    half, text = units.half_width(efficiency), units.percent_interval(efficiency)
    if half is None:
        return f": {text} efficiency, too little measured to rely on."
    if text == units.UNKNOWN:
        return ": too uncertain to say anything of efficiency."
    if half > UNCERTAIN:
        low, high = units.percent(efficiency.low), units.percent(efficiency.high)
        return f": too uncertain to say, {low} to {high} efficiency."
    times = units.count(float(f"{efficiency.value * point.devices:.2g}"))
    return f" do the work of {times}: {text} efficiency."


def oversubscribed(result: SweepResult) -> tuple[str, ...]:
    """Which points share cores, and the most that can be reached there."""
    crowded = [p for p in result.points if p.oversubscribed]
    if not crowded:
        return ()
    limits = [
        f"{units.percent(p.best_possible_efficiency)} at {p.devices}"
        for p in crowded
        if p.best_possible_efficiency is not None
    ]
    threads = result.environment.threads_per_device
    each = f", {threads} for each device" if threads > 1 else ""
    return (
        f"Oversubscribed: devices share {things(result.environment.cores, 'core')}{each}. The "
        "most that a "
        f"job which keeps its cores busy can reach: {units.listed(limits)} devices.",
    )


def _scaling(result: SweepResult, one: Point | None) -> Iterator[str]:
    worst = worst_point(result)
    known = [p for p in result.points if p.efficiency is not None and p.devices > 1]
    said = worst or (known[-1] if known else None)
    if said is not None and not _is_certain(said.efficiency):
        text = units.percent_interval(said.efficiency)
        reached = "efficiency is not known" if text == units.UNKNOWN else f"{text} efficiency"
        yield (
            f"{_devices(said)}: {reached}, too uncertain to say what is lost. "
            "Free the machine of other work, or give it more --rounds and --seconds."
        )
        return
    if worst is not None and worst.efficiency is not None:
        lost = units.percent(1 - worst.efficiency.value, units.half_width(worst.efficiency))
        yield f"{_devices(worst)}: {lost} lost. {_lost_to(worst, one)}".strip()
        return
    if known:
        efficiency = units.percent_interval(known[-1].efficiency)
        yield f"{_devices(known[-1])}: {efficiency} efficiency, nothing lost that is worth a fix."


def _lost_to(point: Point, one: Point | None) -> str:
    """``Data loading 12, communication 8, straggler 3 (rank 5), host contention 1.``"""
    if point.time_share is None:
        return ""
    found = losses(point, one) if one is not None else None
    sized = {loss.part: loss.lost for loss in found} if found else _lost_shares(point.time_share)
    known = {part: lost for part, lost in sized.items() if is_told(part, lost, point, one)}
    named = [
        f"{part.label} {_points(lost)}{_rank(point, part)}"
        for part, lost in sorted(known.items(), key=lambda item: -item[1].value)
        if abs(lost.value) >= MENTIONED
    ]
    opening = "" if found is not None or not named else "of each step, in percent: "
    unknown = [part.label for part in sized if part not in known]
    clauses = [opening + ", ".join(named)] if named else []
    clauses += [f"not known: {', '.join(unknown)}"] if unknown else []
    return " ".join(f"{clause[0].upper()}{clause[1:]}." for clause in clauses)


def _points(lost: Interval) -> str:
    """``12``; ``12 ±7`` if that matters."""
    half = units.half_width(lost) or 0.0
    return units.points(lost.value) + (f" ±{100 * half:.0f}" if half >= units.SAID_HALF else "")


def _lost_shares(shares: TimeShare) -> dict[Part, Interval]:
    """All parts but computing, as far as they were measured."""
    found = {part: shares.of(part.id) for part in PARTS if part is not COMPUTE}
    return {
        part: Interval(value=share.value, low=share.low, high=share.high)
        for part, share in found.items()
        if share.value is not None
    }


def _is_certain(efficiency: Interval | None) -> bool:
    """Whether what is lost may be told. Without an interval it may not."""
    half = units.half_width(efficiency)
    return half is not None and half <= UNCERTAIN


def _rank(point: Point, part: Part) -> str:
    told = part is STRAGGLER and point.slow_rank is not None
    return f" (rank {point.slow_rank})" if told else ""


def _unknown_shares(result: SweepResult) -> Iterator[str]:
    unknown = [
        p.devices for p in result.points if p.time_share is not None and is_unknown(p.time_share)
    ]
    if unknown:
        yield (
            f"Time shares at {units.counts(unknown, 'device')}: those shown as {units.UNKNOWN} are "
            f"known no better than ±{100 * units.UNKNOWN_HALF:.0f} points. Free the machine of "
            "other work, or give it more --rounds and --seconds."
        )


def _one_device(one: Point | None) -> Iterator[str]:
    """A job that starves one device already scales well, and is slow all the same."""
    if one is None or one.time_share is None or one.time_share.compute.value is None:
        return
    compute, most = one.time_share.compute.value, one.time_share.compute.high
    if (compute if most is None else most) >= WORKING or is_unknown(one.time_share):
        return
    shares = {p: s for p, s in _lost_shares(one.time_share).items() if units.is_known(s)}
    part, lost = max(shares.items(), key=lambda item: item[1].value or 0.0, default=(None, None))
    taken = (lost.value or 0.0) if lost is not None else 0.0
    if part is not None and taken >= (1 - compute) * MOST_OF_IT:
        cause = f"{part.label} {part.takes} {units.share(lost)}"
    else:
        cause = "what takes the rest is not known"
    yield (
        f"1 device already computes for only {units.share(one.time_share.compute)} of its step "
        f"({cause}): efficiency does not show that."
    )


def first_fix(result: SweepResult) -> Diagnosis | None:
    """The surest gain: the first diagnosis that is no mere suspicion; None if there is none.

    Of the count that the verdict is about, if it has one; what one device loses comes first only
    if that is surely more, and never a larger batch: that is another training.
    """
    sure = [d for d in result.diagnoses if d.severity != "info" and (d.regain.low or 0.0) >= SURE]
    said = max((p.devices for p in result.points if p.efficiency is not None), default=None)
    first = next((d for d in sure if d.devices == said), None)
    if first is None:
        return next(iter(sure), None)
    most = first.regain.value if first.regain.high is None else first.regain.high
    alone = next((d for d in sure if d.devices == 1 and d.id != LARGER_BATCH), first)
    return alone if (alone.regain.low or 0.0) > most else first


def _fix_first(result: SweepResult) -> Iterator[str]:
    first = first_fix(result)
    if first is not None:
        advice = f" {first.advice[0]}" if first.advice else ""
        yield f"{FIX_FIRST}{diagnosis_line(first)}.{advice}"


def diagnosis_line(diagnosis: Diagnosis) -> str:
    """``data-loader-starvation, +12 points (±2) at 8 devices``."""
    rank = "" if diagnosis.rank is None else f" (rank {diagnosis.rank})"
    regain = units.points_interval(diagnosis.regain)
    if diagnosis.devices == 1:  # whose efficiency is 1 by definition
        return f"{diagnosis.id}{rank}, {regain_points(regain)} of the step at 1 device"
    return (
        f"{diagnosis.id}{rank}, +{regain_points(regain)} at {things(diagnosis.devices, 'device')}"
    )


def regain_points(text: str) -> str:
    """``12 (±2)`` to ``12 points (±2)``."""
    value, _, half = text.partition(" (")
    return f"{value} points ({half}" if half else f"{value} points"


def _failures(result: SweepResult) -> Iterator[str]:
    for point in result.points:
        if point.status != "ok":
            verb = "hung" if point.status == "timeout" else "failed"
            first = (point.error or "no reason is known").splitlines()[0]
            said = first if first.startswith(f"{point.devices} ") else f"{_devices(point)}: {first}"
            yield f"{verb.capitalize()}: {said}"
    if result.interrupted:
        yield "Interrupted: only what was finished by then is shown."


def _devices(point: Point) -> str:
    return things(point.devices, "device")
