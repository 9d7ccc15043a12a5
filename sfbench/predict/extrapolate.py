"""From the parts of the step at the measured counts to a larger one. Pure.

Everything is counted in steps of one device: 1 / efficiency is how long a step takes at N, and each
part is what it takes of that. A part may stay as it is at the largest count, or grow as steeply as
the fastest cause of its kind: rings, order statistics and waiting no more than on a straight line
through the last two counts, a shared capacity (loaders, cores) in proportion to the devices. The
interval reaches from one to the other, and by the interval of what it starts from. Fits of one law
(Amdahl's, the USL) give narrow intervals that miss, since they cannot know which cause comes next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sfbench.common.schema import Interval, Point
from sfbench.common.units import is_known

SHARED = ("data", "host")
"""What ranks draw from one capacity of the machine."""
GROWING = ("communication", "straggler", "jitter", "stalls")
ALL = "all"
"""The loss as a whole: its parts are not known."""
NOISE = 0.01
"""A part of less than this share of a step is taken for none."""
FULL = 0.05
"""A capacity is used up if so little more samples/s came from more devices."""
WIDEST = 0.30
"""A wider interval of the efficiency says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCount:
    """One measured count, in steps of one device."""

    devices: int
    step: float
    half_width: float
    """Of ``step``."""
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPart:
    """One part at the count asked for, in steps of one device."""

    name: str
    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolated:
    """A count that was not measured."""

    devices: int
    efficiency: Interval
    parts: tuple[PredictedPart, ...]


def measured_of(point: Point) -> MeasuredCount | None:
    """A point as it enters; None: it has no efficiency with an interval."""
    found = point.efficiency
    if point.status != "ok" or found is None or found.value <= 0:
        return None
    if found.low is None or found.high is None:
        return None
    low, high = max(found.low, 1e-6), found.high
    step = 1 / found.value
    return MeasuredCount(
        devices=point.devices,
        step=step,
        half_width=(1 / low - 1 / high) / 2,
        parts=_parts(point, step),
    )


def _parts(point: Point, step: float) -> dict[str, float]:
    """What each cause takes; where causes are not known apart, all of the loss as one."""
    share = point.time_share
    shares = {name: share.of(name) if share else None for name in (*SHARED, *GROWING)}
    values = {
        name: one.value
        for name, one in shares.items()
        if one is not None and one.value is not None and is_known(one)
    }
    vague = any(
        name not in values and one is not None and one.value is not None
        for name, one in shares.items()
    )
    if point.devices > 1 and (vague or "communication" not in values):
        return {ALL: max(0.0, step - 1)}
    return {name: max(0.0, values.get(name, 0.0) * step) for name in shares}


def _alike(one: MeasuredCount, other: MeasuredCount) -> MeasuredCount:
    """With its loss as a whole if that of the other is: a part is compared with the same part."""
    if ALL in other.parts and ALL not in one.parts:
        return replace(one, parts={ALL: max(0.0, one.step - 1)})
    return one


def extrapolate(points: Sequence[MeasuredCount], devices: int) -> Extrapolated:
    """A count from those below it; at least two, ascending."""
    before, last = _alike(points[-2], points[-1]), _alike(points[-1], points[-2])
    parts = tuple(_grown(name, before, last, devices) for name in last.parts)
    rest = last.step - sum(last.parts.values())
    ratio = (devices - last.devices) / (last.devices - before.devices)
    error = math.hypot(last.half_width * (1 + ratio), before.half_width * ratio)
    low = max(rest + sum(p.low for p in parts) - last.half_width, 1e-6)
    high = rest + sum(p.high for p in parts) + error
    value = max(rest + sum(p.value for p in parts), 1e-6)
    return Extrapolated(
        devices=devices,
        efficiency=Interval(value=1 / value, low=1 / high, high=1 / low),
        parts=parts,
    )


def _grown(name: str, before: MeasuredCount, last: MeasuredCount, devices: int) -> PredictedPart:
    now = last.parts[name]
    rise = max(0.0, now - before.parts[name])
    line = now + rise * (devices - last.devices) / (last.devices - before.devices)
    doublings = math.log(devices / last.devices) / math.log(last.devices / before.devices)
    value = now + rise * doublings
    if name in GROWING or now < NOISE * last.step:
        return PredictedPart(name=name, low=now, value=value, high=line)
    full = now + last.step * (devices / last.devices - 1)
    if _is_full(before, last):
        return PredictedPart(name=name, low=line if line < full else full, value=full, high=full)
    return PredictedPart(name=name, low=now, value=min(value, full), high=full)


def _is_full(before: MeasuredCount, last: MeasuredCount) -> bool:
    """More devices brought no more samples/s: a capacity is used up."""
    rates = [one.devices / one.step for one in (before, last)]
    return rates[1] <= (1 + FULL) * rates[0]
