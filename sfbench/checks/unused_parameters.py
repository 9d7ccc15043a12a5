"""DDP searches for unused parameters in every step, and there are none."""

from __future__ import annotations

from sfbench.checks.facts import LaunchFacts, at, result
from sfbench.common.schema import CheckResult
from sfbench.common.units import seconds

ID = "unused-parameters"
FEWEST = 3
"""Backward passes that have to be watched."""


def check(launch: LaunchFacts) -> CheckResult:
    """Warn if the search is asked for and no rank ever had an unused parameter."""
    searching = [
        [rank.models[place] for rank in launch.ranks if place < len(rank.models)]
        for place, model in enumerate(launch.ranks[0].models if launch.ranks else ())
        if model.looks_for_unused
    ]
    if not searching:
        return result(ID, "not-applicable", "find_unused_parameters is not set.")
    for models in searching:
        looked = min(model.looked for model in models)
        if looked >= FEWEST and not any(model.unused for model in models):
            costs = [model.search_s for model in models if model.search_s is not None]
            cost = f" ({seconds(max(costs))})" if costs else ""
            text = (
                f"find_unused_parameters=True{at(models[0].line)}, but none was unused in {looked} "
                f"steps: each step searches for nothing{cost} and buckets are not put in order."
            )
            return result(ID, "warn", text)
    names = sorted({name for models in searching for model in models for name in model.unused})
    found = f"Some are unused, as {names[0]}." if names else "Too few steps were seen."
    return result(ID, "pass" if names else "not-applicable", found)
