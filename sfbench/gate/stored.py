"""A stored result as the base of a gate."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from sfbench.errors import ResultError
from sfbench.gate.decision import MIN_VALUES
from sfbench.gate.model import Parts
from sfbench.schema import Point, SweepResult, TimeShare


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One device count of a stored result."""

    name: str
    devices: int
    rates: tuple[float, ...]
    """samples/s of each launch: medians over its blocks."""
    cached_samples_per_s: float
    """The control."""
    solo_samples_per_s: float | None
    """One device by itself, what efficiency is anchored to."""
    commit: str | None
    parts: Parts


def stored_base(result: SweepResult, devices: int) -> Stored:
    """Take what a gate compares with out of a sweep's result.

    Raises:
        ResultError: the point is missing, failed or without steps, has too few launches, or holds
            no control.
    """
    point = _point(result, devices)
    rates = tuple(statistics.median(launch.blocks) for launch in point.launches if launch.blocks)
    if len(rates) < MIN_VALUES:
        raise ResultError(
            f"{result.name}: {len(rates)} launches at {devices} devices say nothing of noise. "
            "Make it with `sfbench gate record`."
        )
    return Stored(
        name=result.name,
        devices=devices,
        rates=rates,
        cached_samples_per_s=_cached(result.name, point),
        solo_samples_per_s=_solo(point),
        commit=result.environment.git_commit,
        parts=parts_of(point.time_share),
    )


def parts_of(share: TimeShare | None) -> Parts:
    """Values of time shares."""
    if share is None:
        return Parts()
    return Parts(
        compute=share.compute.value,
        host=share.host.value,
        straggler=share.straggler.value,
        jitter=share.jitter.value,
        communication=share.communication.value,
        data=share.data.value,
    )


def _point(result: SweepResult, devices: int) -> Point:
    point = next((p for p in result.points if p.devices == devices), None)
    if point is None:
        counts = ", ".join(str(p.devices) for p in result.points) or "none"
        raise ResultError(
            f"{result.name}: no point at {devices} devices (it has {counts}). Give --devices, or "
            "make one with `sfbench gate record`."
        )
    if point.status != "ok" or not point.steps_measured or point.samples_per_s is None:
        reason = (point.error or "no step was measured").splitlines()[0]
        raise ResultError(f"{result.name}: the point at {devices} devices has no figure: {reason}")
    return point


def _cached(name: str, point: Point) -> float:
    """From T_cached = (1 - data) T_train."""
    data = point.time_share.data.value if point.time_share is not None else None
    if data is None or point.samples_per_s is None:
        raise ResultError(
            f"{name}: the cached rung was not measured at {point.devices} devices, so nothing "
            "tells a slower machine from slower code. Make it with `sfbench gate record`."
        )
    return point.samples_per_s.value / (1 - data)


def _solo(point: Point) -> float | None:
    steps = [rank.solo_step_s for rank in point.ranks]
    known = [step for step in steps if step is not None]
    if not known or len(known) < len(steps) or point.batch_per_device is None:
        return None
    return point.batch_per_device / statistics.fmean(known)
