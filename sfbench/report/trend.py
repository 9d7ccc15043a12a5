"""Several results over time: the same device count in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfbench.common import units
from sfbench.common.schema import Point, SweepResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendRow:
    """One result at the common count."""

    name: str
    started: str
    commit: str
    samples_per_s: str
    efficiency: str
    bar: float
    """samples/s beside the fastest, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Results by the time at which they began, the oldest first."""

    devices: int
    rows: tuple[TrendRow, ...]
    mixed: tuple[str, ...]
    """What differs between them, so that their rates do not compare."""


def trend(results: Sequence[SweepResult]) -> Trend | None:
    """At the largest count that all measured; None for one result, or without such a count."""
    counts = [{p.devices for p in r.points if p.samples_per_s is not None} for r in results]
    common = set.intersection(*counts) if len(counts) > 1 else set()
    if not common:
        return None
    devices = max(common)
    inorder = sorted(results, key=lambda r: r.environment.started_at)
    fastest = max(_rate(_point(r, devices)) for r in inorder)
    return Trend(
        devices=devices,
        rows=tuple(_row(r, _point(r, devices), fastest) for r in inorder),
        mixed=tuple(_mixed(inorder)),
    )


def _point(result: SweepResult, devices: int) -> Point:
    return next(p for p in result.points if p.devices == devices)


def _rate(point: Point) -> float:
    assert point.samples_per_s is not None
    return point.samples_per_s.value


def _row(result: SweepResult, point: Point, fastest: float) -> TrendRow:
    return TrendRow(
        name=result.name,
        started=result.environment.started_at[:16].replace("T", " "),
        commit=(result.environment.git_commit or units.MISSING)[:10],
        samples_per_s=units.rate_interval(point.samples_per_s),
        efficiency=units.percent_interval(point.efficiency),
        bar=_rate(point) / fastest if fastest else 0.0,
    )


def _mixed(results: Sequence[SweepResult]) -> list[str]:
    seen: dict[str, set[object]] = {
        "targets": {r.target for r in results},
        "machines": {(r.environment.host, r.environment.cpu, r.environment.gpus) for r in results},
        "torch versions": {r.environment.torch for r in results},
        "scaling": {r.scaling for r in results},
    }
    return [name for name, values in seen.items() if len(values) > 1]
