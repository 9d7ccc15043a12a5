"""The control: the cached rung, which no pipeline change can move. If it moved, the machine did.

Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from sfbench.gate.decision import Centre, estimate

BAND = 0.04
"""The control may differ between the sides by this ratio, where no calibration says by how much it
does by itself."""
ALPHA = 0.01
"""Two-sided error of the statement that it differs at all."""
LEVEL_BAND = 0.12
"""Its level may shift by this ratio while both sides are measured. Pairs are close in time, so less
than that hardly touches their ratios. A program that takes one core of two from a job of two busy
ranks costs the control 14 to 20 %."""
LEAST_AFTER = 2
"""Pairs on either side of a shift: one alone is a burst."""


def differs(at: Centre, band: float) -> bool:
    """Whether the control differs between the sides, by more than ``band`` and beyond noise."""
    moved = estimate(at, 1 - ALPHA)
    return abs(at.mean) > math.log1p(band) and not moved.low <= 0.0 <= moved.high


def shifted(levels: Sequence[float]) -> bool:
    """Whether the control's level shifted and stayed there.

    ``levels``: log of its rate, of each pair in order. A shift is a place in time before and after
    which the medians differ by more than ``LEVEL_BAND`` and no two levels overlap.
    """
    return any(_apart(levels[:k], levels[k:]) for k in range(LEAST_AFTER, len(levels) - 1))


def _apart(before: Sequence[float], after: Sequence[float]) -> bool:
    if not (max(before) < min(after) or max(after) < min(before)):
        return False
    step = statistics.median(after) - statistics.median(before)
    return abs(step) > math.log1p(LEVEL_BAND)
