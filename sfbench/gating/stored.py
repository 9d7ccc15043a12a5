"""A stored result as the base of a gate."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sfbench.analyze.parts import PARTS
from sfbench.common import units
from sfbench.common.errors import ResultError
from sfbench.common.schema import Point, Share, SweepResult, TimeShare
from sfbench.common.units import things
from sfbench.gating.gate_report import Parts, nothing_measured
from sfbench.gating.statistics.decision import MIN_VALUES


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One device count of a stored result."""

    name: str
    devices: int
    rates: tuple[float, ...]
    """samples/s of each launch: medians over its blocks."""
    cached_rates: tuple[float, ...]
    """The control, in the same way."""
    solo_samples_per_s: float | None
    """One device by itself, what efficiency is anchored to."""
    commit: str | None
    parts: Parts
    parts_half_width: Parts


def stored_base(result: SweepResult, devices: int) -> Stored:
    """Take what a gate compares with out of a sweep's result.

    Raises:
        ResultError: the point is missing, failed or without steps, has too few launches, or holds
            no control.
    """
    point = _point(result, devices)
    rates = _medians(result.name, [launch.blocks for launch in point.launches])
    if len(rates) < MIN_VALUES:
        raise ResultError(
            f"{result.name}: {things(len(rates), 'launch')} at {things(devices, 'device')}, "
            "too few to tell noise. Make it with `sfbench gate record`."
        )
    return Stored(
        name=result.name,
        devices=devices,
        rates=rates,
        cached_rates=_cached(result.name, point),
        solo_samples_per_s=_solo(point),
        commit=result.environment.git_commit,
        parts=parts_of(point.time_share),
        parts_half_width=half_widths_of(point.time_share),
    )


def parts_of(share: TimeShare | None) -> Parts:
    """Values of time shares."""
    return _each(share, lambda part: part.value)


def half_widths_of(share: TimeShare | None) -> Parts:
    """Half-widths of their intervals."""
    return _each(share, units.half_width)


def _each(share: TimeShare | None, of: Callable[[Share], float | None]) -> Parts:
    if share is None:
        return nothing_measured()
    return {part.id: of(share.of(part.id)) for part in PARTS}


def _medians(name: str, launches: Iterable[Sequence[float]]) -> tuple[float, ...]:
    rates = tuple(statistics.median(blocks) for blocks in launches if blocks)
    if any(rate <= 0 for rate in rates):
        raise ResultError(f"{name}: it holds a rate of 0 samples/s or less: nothing was measured.")
    return rates


def _point(result: SweepResult, devices: int) -> Point:
    point = next((p for p in result.points if p.devices == devices), None)
    if point is None:
        counts = ", ".join(str(p.devices) for p in result.points) or "none"
        raise ResultError(
            f"{result.name}: no point at {things(devices, 'device')} (it has {counts}). Give "
            "--devices, or "
            "make one with `sfbench gate record`."
        )
    if point.status != "ok" or not point.steps_measured or point.samples_per_s is None:
        reason = (point.error or "no step was measured").splitlines()[0]
        raise ResultError(
            f"{result.name}: the point at {things(devices, 'device')} has no figure: {reason}"
        )
    return point


def _cached(name: str, point: Point) -> tuple[float, ...]:
    rates = _medians(name, [launch.cached_blocks for launch in point.launches])
    if len(rates) < MIN_VALUES:
        raise ResultError(
            f"{name}: the cached rung was not measured at {things(point.devices, 'device')}, "
            "so nothing "
            "tells a slower machine from slower code. Make it with `sfbench gate record`."
        )
    return rates


def _solo(point: Point) -> float | None:
    steps = [rank.solo_step_s for rank in point.ranks]
    known = [step for step in steps if step is not None and step > 0]
    if not known or len(known) < len(steps) or point.batch_per_device is None:
        return None
    return point.batch_per_device / statistics.fmean(known)
