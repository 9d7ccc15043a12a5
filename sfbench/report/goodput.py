"""Where the wall time of a whole epoch goes, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sfbench.common import units
from sfbench.common.schema import EpochTime, Point, SweepResult

MENTIONED = 0.005
"""Parts that take less of the epoch are not named."""


def goodput_line(result: SweepResult) -> str:
    """``One epoch: 83.0 s at 1 device (training 72%, stalls 28%), 41.5 s at 2 devices (…).``

    Empty if the length of an epoch is not known.
    """
    known = [(point, point.epoch) for point in result.points if point.epoch is not None]
    if not known:
        return ""
    told = ", ".join(_told(point, epoch) for point, epoch in known)
    start_up = max(epoch.start_up_s for _, epoch in known)
    once = f"Starting up takes {units.seconds(start_up)} once."
    return " ".join((f"One epoch: {told}.", once, *_unseen(known)))


def _unseen(known: Sequence[tuple[Point, EpochTime]]) -> Iterator[str]:
    """What comes once in many steps is not seen in launches that are shorter than that."""
    short = [
        point.stalls_seen_up_to_steps
        for point, epoch in known
        if 0 < point.stalls_seen_up_to_steps < epoch.steps
    ]
    if short:
        yield f"Stalls rarer than one in {units.count(min(short))} steps were not seen."


def epoch_s(epoch: EpochTime) -> float:
    """All of it, but starting up."""
    return epoch.training_s + epoch.stalls_s + epoch.evaluation_s + epoch.saving_s


def _told(point: Point, epoch: EpochTime) -> str:
    whole_s = epoch_s(epoch)
    parts = {
        "training": epoch.training_s,
        "stalls": epoch.stalls_s,
        "evaluation": epoch.evaluation_s,
        "checkpoints": epoch.saving_s,
    }
    named = ", ".join(
        f"{name} {units.percent(seconds / whole_s)}"
        for name, seconds in parts.items()
        if seconds >= MENTIONED * whole_s
    )
    only_training = epoch.training_s >= (1.0 - MENTIONED) * whole_s
    return f"{units.seconds(whole_s)} at {_devices(point)}{'' if only_training else f' ({named})'}"


def _devices(point: Point) -> str:
    return units.things(point.devices, "device")
