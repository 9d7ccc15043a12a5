"""A note: whether the job scales weakly or strongly, and whether its points can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sfbench.checks.facts import LaunchFacts, result
from sfbench.common.schema import CheckResult

ID = "batch-meaning"
SAME = 0.03
"""Relative difference that counts as none: a last batch may be shorter."""


def check(launches: Sequence[LaunchFacts], scaling: Literal["weak", "strong"]) -> CheckResult:
    """Pass if samples per update are what the kind of scaling says; else warn."""
    known = {f.devices: f.samples_per_update for f in launches if f.samples_per_update}
    if not known:
        return result(ID, "not-applicable", "No step was counted.")
    updates = {devices: devices * known[devices] for devices in sorted(known)}
    seen = ", ".join(f"{total:.0f} at {devices}" for devices, total in updates.items())
    text = f"Samples per update: {seen} device{'s' if max(updates) > 1 else ''}."
    if len(known) == 1:
        return result(ID, "pass", text)
    weak, strong = _same(list(known.values())), _same(list(updates.values()))
    if scaling == "weak" and weak:
        return result(ID, "pass", f"{text} Weak scaling: the batch per device is constant.")
    if scaling == "strong" and strong:
        return result(ID, "pass", f"{text} Strong scaling: the global batch is constant.")
    if strong:
        text += " Strong scaling, by the script: it divides a constant global batch by the devices"
        return result(ID, "warn", f"{text}, and efficiency falls with the batch per device too.")
    text += " Neither the batch per device nor the global batch is constant"
    return result(ID, "warn", f"{text}: each count trains with another one.")


def _same(values: Sequence[float]) -> bool:
    return max(values) <= (1 + SAME) * min(values)
