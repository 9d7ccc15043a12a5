"""Gains as text."""

from __future__ import annotations

from sfbench.common import units
from sfbench.common.schema import Interval
from sfbench.gating.gate_report import Estimate


def gained(gain: Estimate) -> str:
    """``+12% ±2``."""
    return units.change(Interval(value=1 + gain.value, low=1 + gain.low, high=1 + gain.high))


def brief(why: str) -> str:
    """First and last line of a reason: an error's own text stands at its end."""
    lines = why.splitlines() or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"


def predicted(gain: float | None) -> str:
    """``+12%``; a dash if nothing predicts it."""
    if gain is None:
        return units.MISSING
    return units.expected_change(1 + gain)
