"""From ideal to achieved: which part of the step cost which part of the efficiency."""

from __future__ import annotations

from dataclasses import dataclass

from sfbench.analyze.parts import PARTS, Part
from sfbench.common.schema import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What one part of the step costs against one device."""

    part: Part
    value: float
    """Efficiency lost, as a ratio; negative where the part weighs less than at 1 device."""


def losses(point: Point, one: Point) -> tuple[Loss, ...] | None:
    """Split 1 - efficiency of ``point`` over the parts of its step; ``one`` is the 1-device point.

    With T the seconds per sample and device, 1 - efficiency = 1 - T_1 / T_N, and T is the sum of
    its parts, so each part loses share_N - efficiency * share_1. They sum to 1 - efficiency.
    None where a share or the efficiency is not known.
    """
    if point.efficiency is None or point.time_share is None or one.time_share is None:
        return None
    answer = []
    for part in PARTS:
        here, there = point.time_share.of(part.id).value, one.time_share.of(part.id).value
        if here is None or there is None:
            return None
        answer.append(Loss(part=part, value=here - point.efficiency.value * there))
    return tuple(answer)
