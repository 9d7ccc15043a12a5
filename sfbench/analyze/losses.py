"""From ideal to achieved: which part of the step cost which part of the efficiency."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfbench.analyze.parts import PARTS, Part
from sfbench.common.schema import NOT_TOLD_APART, Interval, Point, Share
from sfbench.common.units import half_width, is_known


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What one part of the step costs against one device."""

    part: Part
    lost: Interval
    """Efficiency, as a ratio; negative if the part weighs less than at 1 device."""


def losses(point: Point, one: Point) -> tuple[Loss, ...] | None:
    """Split 1 - efficiency of ``point`` over the parts of its step; ``one`` is the 1-device point.

    With T the seconds per sample and device, 1 - efficiency = 1 - T_1 / T_N, and T is the sum of
    its parts, so each part loses share_N - efficiency * share_1. They sum to 1 - efficiency.
    None if a share or the efficiency is not known.
    """
    if point.efficiency is None or point.time_share is None or one.time_share is None:
        return None
    answer = []
    for part in PARTS:
        here, there = point.time_share.of(part.id), one.time_share.of(part.id)
        if NOT_TOLD_APART in (here.reason, there.reason):
            continue
        if here.value is None or there.value is None:
            return None
        answer.append(Loss(part=part, lost=against_one(here, there, point)))
    return tuple(answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldLosses:
    """Losses that are figures, and what the others come to."""

    told: tuple[Loss, ...]
    untold: tuple[Part, ...]
    """Parts whose loss is known too badly to be a figure."""
    rest: float
    """What the untold ones lose together; 0 if all are told."""


def told_losses(point: Point, one: Point) -> ToldLosses | None:
    """The same, as far as they are figures; None if none is."""
    found = losses(point, one)
    if found is None or point.efficiency is None:
        return None
    told = tuple(loss for loss in found if is_told(loss.part, loss.lost, point, one))
    untold = tuple(loss.part for loss in found if loss not in told)
    if not told:
        return None
    rest = 1.0 - point.efficiency.value - sum(loss.lost.value for loss in told)
    return ToldLosses(told=told, untold=untold, rest=rest if untold else 0.0)


def is_told(part: Part, lost: Interval, point: Point, one: Point | None) -> bool:
    """A loss is a figure only if the shares that it is made of are."""
    shares = [p.time_share.of(part.id) for p in (point, one) if p and p.time_share]
    return is_known(lost) and all(is_known(share) for share in shares if share.value is not None)


def against_one(here: Share | Interval, there: Share | Interval | None, point: Point) -> Interval:
    """``here`` - efficiency * ``there``; the interval joins all three as independent.

    Without ``there``, or without an efficiency, the loss is against a device that does nothing but
    compute: ``here`` itself.
    """
    assert here.value is not None
    own = half_width(here)
    if there is None or there.value is None or point.efficiency is None:
        return _interval(here.value, own)
    efficiency = point.efficiency.value
    value = here.value - efficiency * there.value
    halves = (half_width(there), half_width(point.efficiency))
    if own is None or halves[0] is None or halves[1] is None:
        return _interval(value, None)
    return _interval(value, math.hypot(own, efficiency * halves[0], there.value * halves[1]))


def _interval(value: float, half: float | None) -> Interval:
    if half is None:
        return Interval(value=value, low=None, high=None)
    return Interval(value=value, low=value - half, high=value + half)
