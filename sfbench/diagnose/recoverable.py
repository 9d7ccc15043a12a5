"""Efficiency points that are regained if a part of the step goes away."""

from __future__ import annotations

from sfbench.analyze.losses import against_one
from sfbench.analyze.parts import Part
from sfbench.common.schema import Interval
from sfbench.diagnose.case import Case


def regain(case: Case, part: Part) -> Interval:
    """What one part of the step costs, in efficiency points as a ratio.

    Against one device, see ``sfbench.analyze.losses``; at 1 device, or if that was not measured,
    the share itself.
    """
    return against_one(case.share(part), case.share_at_one(part), case.point)
