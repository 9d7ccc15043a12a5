"""Ranks ran with different numbers of threads."""

from __future__ import annotations

from collections.abc import Sequence

from sfbench.checks.facts import LaunchFacts, result
from sfbench.common import units
from sfbench.common.schema import CheckResult
from sfbench.common.units import things

ID = "threads"


def check(launches: Sequence[LaunchFacts]) -> CheckResult:
    """Fail if the number of intra-op threads differs between ranks or device counts."""
    seen = {
        launch.devices: {rank.threads for rank in launch.ranks}
        for launch in sorted(launches, key=lambda f: f.devices)
        if launch.ranks
    }
    if not seen:
        return result(ID, "not-applicable", "No rank was seen.")
    everywhere = set().union(*seen.values())
    if len(everywhere) == 1:
        return result(ID, "pass", f"{everywhere.pop()} per device everywhere.")
    counts = "; ".join(
        f"{units.listed(sorted(threads))} at {things(devices, 'device')}"
        for devices, threads in seen.items()
    )
    text = (
        f"Threads per rank: {counts}. The script sets them (torch.set_num_threads, "
        "OMP_NUM_THREADS), so its points are not comparable: give every device the same number."
    )
    return result(ID, "fail", text)
