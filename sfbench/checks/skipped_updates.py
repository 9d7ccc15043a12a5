"""GradScaler skipped updates whose gradients had overflowed."""

from __future__ import annotations

from sfbench.checks.facts import LaunchFacts, result
from sfbench.common.schema import CheckResult
from sfbench.common.units import things
from sfbench.protocol.evidence import RankEvidence

ID = "skipped-updates"
FINDING = 10
"""First updates, in which the scaler looks for its scale."""
SOME = 0.02
MANY = 0.25


def check(launch: LaunchFacts) -> CheckResult:
    """Warn from some, fail from many skipped updates after the scale has been found."""
    ranks = [rank for rank in launch.ranks if rank.scaled]
    if not ranks:
        return result(ID, "not-applicable", "No GradScaler.")
    rank = max(ranks, key=_part)
    text = f"GradScaler skipped {len(rank.skipped)} of {things(rank.scaled, 'update')}"
    if not rank.skipped:
        return result(ID, "pass", f"{text}.")
    part = _part(rank)
    if part <= SOME:
        return result(ID, "pass", f"{text}, while it looked for its scale.")
    text += f" on rank {rank.rank}: gradients overflow. Lower the learning rate or clip gradients."
    return result(ID, "fail" if part > MANY else "warn", text)


def _part(rank: RankEvidence) -> float:
    """Skipped part of the updates after those in which the scale is found."""
    later = sum(update >= FINDING for update in rank.skipped)
    if rank.scaled <= FINDING:
        return 1.0 if len(rank.skipped) == rank.scaled else 0.0
    return later / (rank.scaled - FINDING)
