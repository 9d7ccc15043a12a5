"""How much of the step makes a finding, and when it is only a suspicion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sfbench.common.schema import Interval, Share
from sfbench.common.units import is_known

BOTTLENECK = 0.10
"""Ratio of the step (DDP's advice on communication hooks, MLPerf Storage's 90 % utilisation)."""
CONTRIBUTOR = 0.05
"""Ratio of the step."""
SURE_ABOVE = 0.02
"""Ratio of the step that the interval's lower end must exceed for either of the two.

A share that is no figure must be a bottleneck at its lower end.
"""
WORTH_SAYING = 0.02
"""Ratio of the step below which nothing is said at all."""

Severity = Literal["bottleneck", "contributor", "info"]
Certainty = Literal["measured", "minor", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a share amounts to."""

    severity: Severity
    verdict: Certainty
    """measured; minor: certain but small; inconclusive: large but uncertain."""


def judge(share: Share | Interval) -> Judgement | None:
    """Judge a share of the step; None if there is nothing to say."""
    if share.value is None or share.value < WORTH_SAYING:
        return None
    sure = share.low is not None and share.low > (SURE_ABOVE if is_known(share) else BOTTLENECK)
    if share.value >= CONTRIBUTOR:
        if not sure:
            return Judgement(severity="info", verdict="inconclusive")
        severity: Severity = "bottleneck" if share.value >= BOTTLENECK else "contributor"
        return Judgement(severity=severity, verdict="measured")
    if share.low is not None and share.low > 0:
        return Judgement(severity="info", verdict="minor")
    return None
