"""Ranks train copies of their own: no process group, no wrapper, or a forward around it."""

from __future__ import annotations

import math

from sfbench.checks.facts import LaunchFacts, at, result
from sfbench.common.schema import CheckResult
from sfbench.common.units import things
from sfbench.protocol.evidence import RankEvidence

ID = "independent-copies"
_REFUSALS = ("no-process-group", "not-wrapped")


def check(launch: LaunchFacts) -> CheckResult:
    """Fail if ranks did not exchange gradients, or if their weights differ after updates."""
    if launch.failure is not None and launch.failure.kind in _REFUSALS:
        return result(ID, "fail", launch.failure.message)
    if launch.ranks and all(_infinite(rank) for rank in launch.ranks):
        return result(ID, "not-applicable", _diverged(launch.ranks[0]))
    return _by_weights(launch)


def _by_weights(launch: LaunchFacts) -> CheckResult:
    compared = 0
    for a, b in launch.peers():
        updates = min(a.updates, b.updates)
        if _differ(a.weights, b.weights):
            if any(model.own_hook for model in a.models):
                return result(ID, "pass", "Weights differ between ranks, but the script's own "
                              "communication hook may want it so.")  # fmt: skip
            return result(ID, "fail", _differing(a, b, "weights", updates))
        if _differ(a.weights_outside, b.weights_outside) and not a.exchanges_outside:
            what = "weights of parameters outside the DDP model"
            return result(ID, "fail", _differing(a, b, what, updates))
        compared += a.weights is not None and b.weights is not None
    if not compared:
        return result(ID, "not-applicable", "No replicas to compare: sharded, or not seen.")
    text = f"All ranks hold the same weights after {things(launch.ranks[0].updates, 'update')}."
    return result(ID, "pass", text)


def _infinite(rank: RankEvidence) -> bool:
    return rank.weights is not None and not math.isfinite(rank.weights)


def _diverged(rank: RankEvidence) -> str:
    return (
        f"The weights are not finite after {things(rank.updates, 'update')}, on any rank: training "
        "diverges, and replicas cannot be compared. Look at the learning rate and the data."
    )


def _differ(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return False
    return a != b and not (math.isnan(a) and math.isnan(b))


def _differing(a: RankEvidence, b: RankEvidence, what: str, updates: int) -> str:
    line = at(a.models[0].line) if a.models else ""
    return (
        f"After {things(updates, 'update')} the {what} differ between ranks {a.rank} and "
        f"{b.rank}{line}: they started apart, or gradients of some parameters are not averaged. "
        "Wrap every trained model in DistributedDataParallel and call the wrapper; without DDP, "
        "broadcast the initial weights."
    )
