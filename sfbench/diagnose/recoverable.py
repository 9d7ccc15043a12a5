"""Efficiency points that are regained where a part of the step goes away."""

from __future__ import annotations

import math

from sfbench.analyze.parts import Part
from sfbench.common.schema import Interval, Point, Share
from sfbench.common.units import half_width
from sfbench.diagnose.case import Case


def regain(case: Case, part: Part) -> Interval:
    """What one of the time shares costs, in efficiency points as a ratio.

    Against one device a part loses share_N - efficiency * share_1: the parts sum to
    1 - efficiency (see ``sfbench.analyze.losses``). At 1 device, or where it was not measured, the
    loss is against a device that does nothing but compute: the share itself. The interval joins
    those of the three figures as independent ones.
    """
    return against_one(case.share(part), case.share_at_one(part), case.point)


def against_one(here: Share | Interval, there: Share | Interval | None, point: Point) -> Interval:
    """``here`` - efficiency * ``there``, with its interval."""
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
