"""The numbers behind a diagnosis: flat, with the unit in each name."""

from __future__ import annotations

from sfbench.diagnose.case import Case
from sfbench.diagnose.severity import Judgement
from sfbench.schema import Share, TimeShare
from sfbench.units import half_width

Evidence = dict[str, float | int | str | bool | None]

DIGITS = 4
"""Significant ones: more is never measured."""


def common(case: Case, part: str, judged: Judgement) -> Evidence:
    """What every diagnosis says of its part of the step."""
    share: Share = getattr(case.shares, part)
    found: Evidence = {
        "verdict": judged.verdict,
        "share_of_step": rounded(share.value),
        "share_half_width": rounded(half_width(share)),
        "seconds_per_step": rounded(case.seconds(part)),
        "step_s": rounded(case.step_s),
    }
    if case.one is not None and case.one.time_share is not None:
        found["share_at_1_device"] = rounded(share_of(case.one.time_share, part))
    return found


def share_of(shares: TimeShare, part: str) -> float | None:
    """The ratio of one part."""
    share: Share = getattr(shares, part)
    return share.value


def rounded(value: float | None) -> float | None:
    """To ``DIGITS`` significant digits."""
    return None if value is None else float(f"{value:.{DIGITS}g}")


def per_sample(case: Case, per_batch: float) -> float:
    """A figure per fetched batch as one per sample."""
    return per_batch / max(case.loop.batch_per_fetch, 1e-9)


def things(count: int, word: str) -> str:
    """``1 core``, ``2 cores``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
