"""A result as the report shows it: text and figures, nothing left to decide for the template."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sfbench.analyze.parts import PARTS, Part
from sfbench.common import units
from sfbench.common.schema import (
    CheckResult,
    Point,
    SweepResult,
)
from sfbench.report.comparison import Comparison, compare
from sfbench.report.drawings import FigureView, Grid, distributions, drawings, where_time_goes
from sfbench.report.drawings_of_steps import memory_grid, step_drawings
from sfbench.report.fixes import Fixes, fixes
from sfbench.report.hero import Hero, hero
from sfbench.report.properties import Fact, sweep_facts
from sfbench.report.result_rows import Rows, table_rows
from sfbench.report.sentences import (
    EMULATED,
    FIX_FIRST,
    headline,
    oversubscribed,
    verdict,
)
from sfbench.report.strip import timeline_strip

OPEN_RANKS = 16
"""A per-rank table of more ranks is folded away."""
_CHECK_ORDER = ("fail", "warn", "pass", "not-applicable")


@dataclass(frozen=True, slots=True, kw_only=True)
class PointView:
    """One row of the efficiency table."""

    devices: int
    status: str
    samples_per_s: str
    ideal: str
    efficiency: str
    plain: str
    """Efficiency as samples per second alone tell it, with the drift of the machine."""
    step: str
    shares: tuple[str, ...]
    """As in the terminal, in the order of ``ResultView.parts``."""
    batch: str
    steps: str
    note: str
    look_here: bool
    bar: float
    """Efficiency from 0 to 1, for the bar in the cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """One rank."""

    rank: int
    local_rank: int
    host: str
    device: str
    samples_per_s: str
    solo_step: str
    data_wait: str
    slow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksView:
    """The ranks of one point."""

    devices: int
    open: bool
    rows: tuple[RankRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureView:
    """A point without figures."""

    devices: int
    status: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultView:
    """One sweep in the report."""

    key: str
    """Unique on the page."""
    name: str
    kicker: str
    headline: str
    badges: tuple[str, ...]
    hero: Hero
    sentences: tuple[str, ...]
    """Without that of the first fix, which stands in ``hero``."""
    notes: tuple[str, ...]
    """What must be said beside every number: emulated, oversubscribed."""
    points: tuple[PointView, ...]
    parts: tuple[Part, ...]
    """Those that have a column."""
    plain: bool
    missing: tuple[Fact, ...]
    """Device counts, and why shares are missing there."""
    where: tuple[FigureView, ...]
    """Where the time goes."""
    distributions: tuple[FigureView, ...]
    memory: Grid | None
    """Beside the batch; None if no device told."""
    fixes: Fixes
    checks: tuple[CheckResult, ...]
    """Failures first."""
    ranks: tuple[RanksView, ...]
    failures: tuple[FailureView, ...]
    warnings: tuple[str, ...]
    facts: tuple[Fact, ...]
    command: str
    comparison: Comparison | None


def result_view(result: SweepResult, key: str, baseline: SweepResult | None) -> ResultView:
    """Make the view of one result, compared with ``baseline`` where there is one."""
    rows = table_rows(result)
    return ResultView(
        key=key,
        name=result.name,
        kicker=_kicker(result),
        headline=headline(result),
        badges=tuple(_badges(result)),
        hero=hero(result),
        sentences=tuple(s for s in verdict(result) if not s.startswith(FIX_FIRST)),
        notes=((EMULATED,) if result.emulated else ()) + oversubscribed(result),
        points=_points(result, rows),
        parts=rows.parts,
        plain=any(p.efficiency_from == "solo-rung" for p in result.points),
        missing=tuple(_missing(result)),
        where=drawings(where_time_goes(result), result, key),
        distributions=drawings(
            (*distributions(result), *step_drawings(result), *timeline_strip(result)), result, key
        ),
        memory=memory_grid(result),
        fixes=fixes(result),
        checks=tuple(sorted(result.checks, key=lambda c: _CHECK_ORDER.index(c.status))),
        ranks=tuple(_ranks(p) for p in result.points if p.ranks),
        failures=tuple(_failures(result)),
        warnings=tuple(_warnings(result)),
        facts=sweep_facts(result),
        command=result.environment.command,
        comparison=compare(result, baseline) if baseline is not None else None,
    )


def _kicker(result: SweepResult) -> str:
    kind = "CPU" if result.device_type == "cpu" else "GPU"
    whose = ", by the script" if result.scaling_by_script else ""
    what = f"{Path(result.target).name} · {kind} · {result.scaling} scaling{whose}"
    return f"{what} · {result.environment.started_at[:10]}"


def _badges(result: SweepResult) -> Iterator[str]:
    if result.emulated:
        yield "emulated accelerator"
    if any(p.oversubscribed for p in result.points):
        yield "oversubscribed"
    if any(p.status != "ok" for p in result.points):
        yield "some points failed"
    if result.interrupted:
        yield "interrupted"


def _points(result: SweepResult, rows: Rows) -> tuple[PointView, ...]:
    return tuple(
        PointView(
            devices=point.devices,
            status=point.status,
            samples_per_s=units.rate_interval(point.samples_per_s),
            ideal=row.ideal,
            efficiency=row.efficiency,
            plain=units.percent_interval(point.efficiency_plain),
            step=units.seconds_interval(point.step_s),
            shares=row.shares,
            batch=row.batch,
            steps=f"{point.steps_measured} + {point.warmup_steps}"
            if point.status == "ok"
            else units.MISSING,
            note=row.note,
            look_here=row.look_here,
            bar=min(point.efficiency.value, 1.0) if point.efficiency else 0.0,
        )
        for point, row in zip(result.points, rows.rows, strict=True)
    )


def _missing(result: SweepResult) -> Iterator[Fact]:
    """Each reason once, with the device counts it stands for."""
    counts: dict[str, list[int]] = {}
    for point in result.points:
        if point.time_share is None:
            continue
        shares = [point.time_share.of(part.id) for part in PARTS]
        for reason in dict.fromkeys(s.reason for s in shares if s.reason):
            counts.setdefault(reason, []).append(point.devices)
    for reason, devices in counts.items():
        yield Fact(name=units.counts(devices, "device"), text=reason)


def _ranks(point: Point) -> RanksView:
    return RanksView(
        devices=point.devices,
        open=len(point.ranks) <= OPEN_RANKS,
        rows=tuple(
            RankRow(
                rank=r.rank,
                local_rank=r.local_rank,
                host=r.host,
                device=r.device,
                samples_per_s=units.rate(r.samples_per_s),
                solo_step=units.seconds(r.solo_step_s),
                data_wait=units.seconds(r.data_wait_s),
                slow=r.rank == point.slow_rank,
            )
            for r in point.ranks
        ),
    )


def _failures(result: SweepResult) -> Iterator[FailureView]:
    for point in result.points:
        if point.status != "ok":
            yield FailureView(
                devices=point.devices,
                status="hung" if point.status == "timeout" else "failed",
                error=point.error or "no reason is known",
            )


def _warnings(result: SweepResult) -> Iterator[str]:
    yield from result.warnings
    for point in result.points:
        count = units.things(point.devices, "device")
        yield from (f"{count}: {warning}" for warning in point.warnings)
