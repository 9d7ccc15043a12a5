"""Orders diagnoses by what they give back, and keeps their sum within what was lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sfbench.common.schema import Diagnosis, Interval, Point

_SEVERITIES = ("bottleneck", "contributor", "info")


def loss(point: Point, one: Point | None) -> float:
    """All that can be regained at a point, as a ratio.

    Against one device 1 - efficiency; where devices share cores, what lies below the most that
    those cores allow. At 1 device, or without it, what a device that does nothing
    but compute would have more: 1, of which each diagnosis takes its own share.
    """
    if one is None or point.devices == 1 or point.efficiency is None:
        return 1.0
    most = point.best_possible_efficiency
    if most is None or point.efficiency.value >= most:
        most = 1.0
    return max(0.0, most - point.efficiency.value)


def most_lost(point: Point, one: Point | None) -> float:
    """The same at the low end of the efficiency's interval: no regain can be above it."""
    efficiency = point.efficiency
    if efficiency is None:
        return loss(point, one)
    if efficiency.low is None:  # without an interval nothing is known: all may be lost
        return 1.0
    return max(
        loss(point, one),
        loss(replace(point, efficiency=Interval(value=efficiency.low, low=None, high=None)), one),
    )


def ranked(
    diagnoses: Iterable[Diagnosis], points: Sequence[Point], one: Point | None
) -> tuple[Diagnosis, ...]:
    """Cap what is regained inside steps at each point's loss; the biggest regain first."""
    losses = {point.devices: loss(point, one) for point in points}
    ends = {point.devices: most_lost(point, one) for point in points}
    capped = [_within(d, ends) for d in _capped(list(diagnoses), losses)]
    return tuple(sorted(capped, key=lambda d: (-d.regain.value, _SEVERITIES.index(d.severity))))


def _capped(diagnoses: list[Diagnosis], losses: Mapping[int, float]) -> list[Diagnosis]:
    floored = [replace(d, regain=_floor(d.regain)) for d in diagnoses]
    totals: dict[int, float] = {}
    for d in floored:
        if not d.evidence.get("outside_the_step"):
            totals[d.devices] = totals.get(d.devices, 0.0) + d.regain.value
    scales = {
        devices: min(1.0, losses[devices] / total) if total > 0 else 1.0
        for devices, total in totals.items()
    }
    return [
        d
        if d.evidence.get("outside_the_step")
        else replace(d, regain=_scaled(d.regain, scales.get(d.devices, 1.0)))
        for d in floored
    ]


def _within(diagnosis: Diagnosis, ends: Mapping[int, float]) -> Diagnosis:
    """Its interval ends where everything that may be lost is regained."""
    end, regain = ends.get(diagnosis.devices), diagnosis.regain
    if end is None or regain.high is None or diagnosis.evidence.get("outside_the_step"):
        return diagnosis
    return replace(diagnosis, regain=replace(regain, high=max(regain.value, min(regain.high, end))))


def _floor(regain: Interval) -> Interval:
    """Nothing is regained below zero; the interval keeps its ends."""
    return replace(regain, value=max(0.0, regain.value)) if regain.value < 0 else regain


def _scaled(regain: Interval, scale: float) -> Interval:
    """The value within the loss, and its interval with it."""
    if scale == 1.0:
        return regain
    value = regain.value * scale
    low = None if regain.low is None else min(regain.low, value)
    high = None if regain.high is None else max(value, regain.high * scale)
    return replace(regain, value=value, low=low, high=high)
