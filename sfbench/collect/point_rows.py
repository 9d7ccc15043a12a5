"""A point as one flat row: the columns of ``Results.points`` and of ``show --format csv``."""

from __future__ import annotations

import dataclasses

from sfbench.common.schema import Interval, Point, Share, SweepResult, TimeShare

_INTERVALS = (
    "samples_per_s",
    "efficiency",
    "efficiency_plain",
    "efficiency_drift_corrected",
    "step_s",
)
_PLAIN = (
    "devices",
    "status",
    "error",
    "oversubscribed",
    "best_possible_efficiency",
    "ideal_samples_per_s",
    "steps_measured",
    "warmup_steps",
    "batch_per_device",
    "global_batch",
)
_SHARES = tuple(f.name for f in dataclasses.fields(TimeShare))

Cell = float | int | str | bool | None
COLUMNS = (
    *_PLAIN,
    *(f"{name}{end}" for name in (*_INTERVALS, *_SHARES) for end in ("", "_low", "_high")),
)
"""An interval x is x, x_low and x_high."""


def point_row(point: Point) -> dict[str, Cell]:
    """One value for each of ``COLUMNS``; None if it was not measured."""
    row: dict[str, Cell] = {name: getattr(point, name) for name in _PLAIN}
    for name in _INTERVALS:
        row |= _interval_cells(name, getattr(point, name))
    for name in _SHARES:
        row |= _interval_cells(name, getattr(point.time_share, name) if point.time_share else None)
    return row


def flat(result: SweepResult) -> dict[str, float]:
    """Every figure of a result under one name, for trackers that know numbers only.

    ``devices_8/efficiency``, ``devices_8/efficiency_low`` …, ``devices_8/regain/small-batch``.
    What was not measured has no entry.
    """
    figures: dict[str, float] = {}
    for point in result.points:
        for name, value in point_row(point).items():
            if isinstance(value, int | float) and name != "devices":
                figures[f"devices_{point.devices}/{name}"] = float(value)
    for diagnosis in reversed(result.diagnoses):  # of two with one name the greater stands
        figures[f"devices_{diagnosis.devices}/regain/{diagnosis.id}"] = diagnosis.regain.value
    figures["points_failed"] = float(sum(p.status != "ok" for p in result.points))
    figures["checks_failed"] = float(sum(c.status == "fail" for c in result.checks))
    figures["duration_s"] = result.duration_s
    return figures


def _interval_cells(name: str, interval: Interval | Share | None) -> dict[str, Cell]:
    if interval is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
