"""Gradients are averaged over the ranks on micro-steps that do not use them."""

from __future__ import annotations

from statistics import median

from sfbench.checks.facts import LaunchFacts, at, result
from sfbench.common.schema import CheckResult
from sfbench.common.units import seconds
from sfbench.protocol.evidence import Model

ID = "accumulation-sync"


def check(launch: LaunchFacts) -> CheckResult:
    """Fail if an update needs one sync and gets several."""
    if not launch.ranks:
        return result(ID, "not-applicable", "Nothing was seen.")
    first = launch.ranks[0]
    accumulating = [m for m in first.models if m.backwards and median(m.backwards) > 1]
    if not accumulating:
        return result(ID, "not-applicable", "Each update has one backward pass in DDP.")
    for model in accumulating:
        if median(model.synced) > 1:
            several = launch.fetches_per_update is None or launch.fetches_per_update > 1.5
            cost = _cost(model, launch, first.sync_cost_s)
            return result(ID, "fail" if several else "warn", _text(model, cost))
    return result(ID, "pass", "Gradients are averaged once per update.")


def _cost(model: Model, launch: LaunchFacts, tried: float | None) -> str:
    synced = median(model.synced)
    if tried is not None:
        if tried <= 0:
            return "what the others cost is too little to measure here"
        return f"leaving the others out saves {seconds(tried)} per update"
    if launch.communication_s is not None:
        share = launch.communication_s * (synced - 1) / synced
        if share <= 0:
            return "what the others cost is too little to measure here"
        return f"the others cost about {seconds(share)} per update"
    return "what the others cost is not known"


def _text(model: Model, cost: str) -> str:
    synced, backwards = median(model.synced), median(model.backwards)
    return (
        f"Gradients are averaged {synced:g} times per update, on {backwards:g} micro-steps"
        f"{at(model.line)}; once is enough: {cost}. Put forward and backward of all but the last "
        "micro-step under model.no_sync() (around backward alone it does nothing)."
    )
