"""Saved states carry the names of wrappers, and will not load into the bare model."""

from __future__ import annotations

from sfbench.checks.facts import LaunchFacts, at, result, short
from sfbench.common.schema import CheckResult

ID = "checkpoint-keys"


def check(launch: LaunchFacts) -> CheckResult:
    """Fail if a key of a saved state names DDP (``module.``) or torch.compile."""
    for rank in launch.ranks:
        for save in rank.saves:
            compiled = any("_orig_mod" in key for key in save.keys)
            remedy = (
                "torch.compile's wrapper: save the state of the model before compiling"
                if compiled and not any("module." in key for key in save.keys)
                else "save model.module.state_dict()"
            )
            text = (
                f"{save.count} keys of {short(save.path)} name a wrapper, as {save.keys[0]}"
                f"{at(save.line)}; {remedy}."
            )
            return result(ID, "fail", text)
    saved = sum(rank.states_saved for rank in launch.ranks)
    if not saved:
        return result(ID, "not-applicable", "No state was saved.")
    return result(ID, "pass", f"{saved} saved states hold the model's own names.")
