"""The control: the cached rung, which no pipeline change can move. If it moved, the machine did.

Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from sfbench.gating.statistics.decision import Centre, estimate

BAND = 0.04
"""The control may differ between the sides by this ratio, if no calibration says by how much it
does by itself."""
ALPHA = 0.01
"""Two-sided error of the statement that it differs at all."""
LEVEL_BAND = 0.12
"""Its level may shift by this ratio while both sides are measured. Pairs are close in time, so less
than that hardly touches their ratios."""
BOTH_BANDS = 0.05, 0.10
"""The same if the job's own level shifts with it: of the control, and of the job. A program that
took one core of two from a job of two ranks cost either 10 to 20 %."""
LEAST_AFTER = 2
"""Pairs on either side of a shift: one alone is a burst."""


def differs(at: Centre, band: float) -> bool:
    """Whether the control differs between the sides, by more than ``band`` and beyond noise."""
    moved = estimate(at, 1 - ALPHA)
    return abs(at.mean) > math.log1p(band) and not moved.low <= 0.0 <= moved.high


def shifted(levels: Sequence[float], job: Sequence[float]) -> bool:
    """Whether the control's level shifted and stayed there.

    ``levels``: log of its rate, of each pair in order; ``job``: log of the job's, mean over both
    sides. A shift is a place in time before and after which no two levels overlap, and the medians
    differ by more than ``LEVEL_BAND``; or, of both together and in one direction, ``BOTH_BANDS``.
    """
    places = range(LEAST_AFTER, len(levels) - LEAST_AFTER + 1)
    return any(_differ(_step(levels, place), _step(job, place)) for place in places)


def _differ(control: float, job: float) -> bool:
    if abs(control) > math.log1p(LEVEL_BAND):
        return True
    least, least_job = map(math.log1p, BOTH_BANDS)
    return control * job > 0 and abs(control) > least and abs(job) > least_job


def _step(levels: Sequence[float], place: int) -> float:
    """By how much the median differs after a place in time; 0 if levels overlap."""
    before, after = levels[:place], levels[place:]
    if not (max(before) < min(after) or max(after) < min(before)):
        return 0.0
    return statistics.median(after) - statistics.median(before)
