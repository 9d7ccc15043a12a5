"""A result as rows of text: what the table on the terminal and the one in the report both show."""

from __future__ import annotations

from dataclasses import dataclass

from sfbench.analyze.parts import PARTS, Part
from sfbench.common import units
from sfbench.common.schema import Point, SweepResult, TimeShare

LOOK_BELOW = 0.95
"""The least efficient point is pointed at if its efficiency is below this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One device count, as text."""

    devices: int
    status: str
    """ok | failed | timeout"""
    samples_per_s: str
    ideal: str
    efficiency: str
    step: str
    batch: str
    """Samples per step and device."""
    shares: tuple[str, ...]
    """In the order of ``Rows.parts``."""
    note: str
    """failed | hung | oversubscribed, or empty."""
    look_here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The table of one result."""

    parts: tuple[Part, ...]
    """Those that have a column."""
    rows: tuple[Row, ...]


def table_rows(result: SweepResult) -> Rows:
    """Make the rows of a result, one per device count."""
    parts = tuple(part for part in PARTS if _has_column(part, result))
    worst = worst_point(result)
    return Rows(
        parts=parts, rows=tuple(_row(p, parts, look_here=p is worst) for p in result.points)
    )


def worst_point(result: SweepResult) -> Point | None:
    """The least efficient point, if it is worth a look."""
    known = [p for p in result.points if p.efficiency is not None and p.devices > 1]
    worst = min(known, key=_efficiency, default=None)
    return worst if worst is not None and _efficiency(worst) < LOOK_BELOW else None


def point_note(point: Point) -> str:
    """What must be said wherever a point's numbers stand; empty if there is nothing."""
    if point.status != "ok":
        return "hung" if point.status == "timeout" else "failed"
    return "oversubscribed" if point.oversubscribed else ""


def _row(point: Point, parts: tuple[Part, ...], *, look_here: bool) -> Row:
    return Row(
        devices=point.devices,
        status=point.status,
        samples_per_s=units.rate_cell(point.samples_per_s),
        ideal=units.rate(point.ideal_samples_per_s, _ideal_half(point)),
        efficiency=units.percent_interval(point.efficiency),
        step=units.seconds_cell(point.step_s),
        batch=units.MISSING
        if point.batch_per_device is None
        else units.count(round(point.batch_per_device, 1)),
        shares=tuple(share_cell(point.time_share, part) for part in parts),
        note=point_note(point),
        look_here=look_here,
    )


def _ideal_half(point: Point) -> float | None:
    """The ideal is as uncertain, in parts, as the rate at one device; that of the point stands in
    for it."""
    half = units.half_width(point.samples_per_s)
    if half is None or point.samples_per_s is None or point.ideal_samples_per_s is None:
        return None
    return half * point.ideal_samples_per_s / point.samples_per_s.value


def share_cell(shares: TimeShare | None, part: Part) -> str:
    """One part of one point."""
    return units.MISSING if shares is None else units.share(shares.of(part.id))


def is_unknown(shares: TimeShare) -> bool:
    """Whether some part is known too badly to be a figure."""
    return any(share_cell(shares, part) == units.UNKNOWN for part in PARTS)


def _has_column(part: Part, result: SweepResult) -> bool:
    shares = [p.time_share.of(part.id) for p in result.points if p.time_share is not None]
    return not part.column_from or any((s.value or 0.0) >= part.column_from for s in shares)


def _efficiency(point: Point) -> float:
    assert point.efficiency is not None
    return point.efficiency.value
