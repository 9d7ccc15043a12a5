"""The numbers behind a diagnosis: flat, with the unit in each name."""

from __future__ import annotations

import math

from sfbench.analyze.parts import Part
from sfbench.common.units import half_width
from sfbench.diagnose.case import Case
from sfbench.diagnose.severity import Judgement

Evidence = dict[str, float | int | str | bool | None]

DIGITS = 4
"""Significant ones: more is never measured."""


def common(case: Case, part: Part, judged: Judgement) -> Evidence:
    """What every diagnosis says of its part of the step."""
    share = case.share(part)
    found: Evidence = {
        "verdict": judged.verdict,
        "share_of_step": rounded(share.value),
        "share_half_width": rounded(half_width(share)),
        "seconds_per_step": rounded(case.seconds(part)),
        "step_s": rounded(case.step_s),
    }
    there = case.share_at_one(part)
    if there is not None:
        found["share_at_1_device"] = rounded(there.value)
    return found


def rounded(value: float | None) -> float | None:
    """To ``DIGITS`` significant digits; None if it is not known (nan)."""
    return None if value is None or math.isnan(value) else float(f"{value:.{DIGITS}g}")


def per_sample(case: Case, per_batch: float) -> float:
    """A figure per fetched batch as one per sample."""
    return per_batch / max(case.loop.batch_per_fetch, 1e-9)
