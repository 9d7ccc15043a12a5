"""Gains as text."""

from __future__ import annotations

from sfbench.common import units
from sfbench.common.schema import Interval
from sfbench.gating.gate_report import Estimate


def gained(gain: Estimate) -> str:
    """``+12% ±2``."""
    return units.change(Interval(value=1 + gain.value, low=1 + gain.low, high=1 + gain.high))


def predicted(gain: float | None) -> str:
    """``+12%``; a dash if nothing predicts it."""
    if gain is None:
        return units.MISSING
    return units.change(Interval(value=1 + gain, low=None, high=None))
