"""A note: what the learning rate does as the global batch grows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from sfbench.checks.facts import LaunchFacts, at, result
from sfbench.common.schema import CheckResult
from sfbench.common.units import things
from sfbench.protocol.evidence import Optimizer

ID = "learning-rate"
SAME = 0.01
"""Relative difference of rates that counts as none."""


def check(launches: Sequence[LaunchFacts]) -> CheckResult:
    """Pass with what was seen; warn if a scheduler steps several times per update."""
    points = _points(launches)
    if not points:
        return result(ID, "not-applicable", "No optimizer was seen.")
    largest, optimizer = points[-1]
    parts = [f"{optimizer.name}, rate {optimizer.rate:g} at {_size(largest)}."]
    if len(points) > 1:
        parts.append(_changes(points))
    twice, meant = _steps(largest)
    parts.append(twice or meant)
    return result(ID, "warn" if twice else "pass", " ".join(filter(None, parts)))


def _points(launches: Sequence[LaunchFacts]) -> list[tuple[LaunchFacts, Optimizer]]:
    """One launch per device count, ascending, with its first optimizer."""
    known = {f.devices: (f, f.ranks[0].optimizers[0]) for f in launches
             if f.ranks and f.ranks[0].optimizers}  # fmt: skip
    return [known[devices] for devices in sorted(known)]


def _size(launch: LaunchFacts) -> str:
    devices = things(launch.devices, "device")
    if launch.samples_per_update is None:
        return devices
    return f"{devices}, {launch.devices * launch.samples_per_update:.0f} samples per update"


def _changes(points: Sequence[tuple[LaunchFacts, Optimizer]]) -> str:
    (small, before), (large, after) = points[0], points[-1]
    if not small.samples_per_update or not large.samples_per_update:
        return ""
    batch = large.devices * large.samples_per_update / (small.devices * small.samples_per_update)
    rate = after.rate / before.rate if before.rate else 1.0
    if abs(batch - 1) <= SAME:
        return "The global batch is the same at every device count."
    growing = f"From {small.devices} to {things(large.devices, 'device')}"
    grew = f"{growing} the global batch grows x{batch:.3g}, "
    grew += f"the rate x{rate:.3g}."
    if "SGD" in after.name:
        linear = abs(rate / batch - 1) <= SAME
        return grew + (
            " That is the linear rule." if linear
            else " The linear rule for SGD asks for both alike, with a warmup (Goyal et al. 2017)."
        )  # fmt: skip
    return (
        grew + f" For {after.name} no simple rule holds: check that the loss still falls as fast."
    )


def _steps(launch: LaunchFacts) -> tuple[str, str]:
    """What is wrong with how often a scheduler steps; what only looks like it."""
    meant = ""
    for optimizer in launch.ranks[0].optimizers:
        steps = optimizer.scheduler_steps
        if len(steps) < 2 or median(steps) <= 1:
            continue
        seen = f"{optimizer.scheduler} steps {median(steps):g} times per update"
        by = optimizer.scheduler_stepped_by
        if not by:
            return f"{seen}{at(optimizer.scheduler_line)}: the schedule ends that much sooner.", ""
        meant = f"{seen} by {by}'s design: its schedule counts the batches of one device."
    return "", meant
