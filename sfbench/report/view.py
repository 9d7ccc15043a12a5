"""A result as the report shows it: text and figures, nothing left to decide for the template."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sfbench.analyze.parts import PARTS
from sfbench.common import units
from sfbench.common.schema import CheckResult, Diagnosis, Interval, Point, SweepResult
from sfbench.report.comparison import Comparison, compare
from sfbench.report.drawings import FigureView, drawings
from sfbench.report.properties import Fact, evidence_facts, sweep_facts
from sfbench.report.result_rows import Rows, table_rows
from sfbench.report.sentences import EMULATED, headline, oversubscribed, verdict

OPEN_RANKS = 16
"""A per-rank table of more ranks is folded away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointView:
    """One row of the efficiency table."""

    devices: int
    status: str
    samples_per_s: str
    ideal: str
    efficiency: str
    corrected: str
    """Efficiency with drift taken out."""
    step: str
    batch: str
    steps: str
    note: str
    look_here: bool
    bar: float
    """Efficiency from 0 to 1, for the bar in the cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareView:
    """The time shares of one point."""

    devices: int
    cells: tuple[str, ...]
    """In the order of ``PARTS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisView:
    """A named cause."""

    title: str
    severity: str
    regain: str
    where: str
    advice: tuple[str, ...]
    evidence: tuple[Fact, ...]


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
    sentences: tuple[str, ...]
    notes: tuple[str, ...]
    """What must be said beside every number: emulated, oversubscribed."""
    points: tuple[PointView, ...]
    corrected: bool
    part_names: tuple[str, ...]
    shares: tuple[ShareView, ...]
    missing: tuple[Fact, ...]
    """Device counts, and why shares are missing there."""
    figures: tuple[FigureView, ...]
    diagnoses: tuple[DiagnosisView, ...]
    checks: tuple[CheckResult, ...]
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
        sentences=verdict(result),
        notes=((EMULATED,) if result.emulated else ()) + oversubscribed(result),
        points=_points(result, rows),
        corrected=any(p.efficiency_drift_corrected is not None for p in result.points),
        part_names=tuple(part.label for part in PARTS),
        shares=tuple(_shares(p) for p in result.points if p.time_share is not None),
        missing=tuple(_missing(result)),
        figures=drawings(result, key),
        diagnoses=tuple(_diagnosis(d) for d in result.diagnoses),
        checks=result.checks,
        ranks=tuple(_ranks(p) for p in result.points if p.ranks),
        failures=tuple(_failures(result)),
        warnings=tuple(_warnings(result)),
        facts=sweep_facts(result),
        command=result.environment.command,
        comparison=compare(result, baseline) if baseline is not None else None,
    )


def _kicker(result: SweepResult) -> str:
    kind = "CPU" if result.device_type == "cpu" else "GPU"
    what = f"{Path(result.target).name} · {kind} · {result.scaling} scaling"
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
            corrected=units.percent_interval(point.efficiency_drift_corrected),
            step=units.seconds_interval(point.step_s),
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


def _shares(point: Point) -> ShareView:
    assert point.time_share is not None
    cells = (units.percent_interval(point.time_share.of(part.id)) for part in PARTS)
    return ShareView(devices=point.devices, cells=tuple(cells))


def _missing(result: SweepResult) -> Iterator[Fact]:
    """Each reason once, with the device counts it stands for."""
    counts: dict[str, list[str]] = {}
    for point in result.points:
        if point.time_share is None:
            continue
        shares = [point.time_share.of(part.id) for part in PARTS]
        for reason in dict.fromkeys(s.reason for s in shares if s.reason):
            counts.setdefault(reason, []).append(str(point.devices))
    for reason, devices in counts.items():
        plural = "device" if devices == ["1"] else "devices"
        yield Fact(name=f"{', '.join(devices)} {plural}", text=reason)


def _diagnosis(diagnosis: Diagnosis) -> DiagnosisView:
    plural = "device" if diagnosis.devices == 1 else "devices"
    rank = "" if diagnosis.rank is None else f", rank {diagnosis.rank}"
    return DiagnosisView(
        title=diagnosis.id.replace("-", " "),
        severity=diagnosis.severity,
        regain=f"+{_points_text(diagnosis.regain)}",
        where=f"{diagnosis.devices} {plural}{rank}",
        advice=diagnosis.advice,
        evidence=evidence_facts(diagnosis.evidence),
    )


def _points_text(regain: Interval) -> str:
    value, _, half = units.points_interval(regain).partition(" ")
    return f"{value} points {half}".strip()


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
        plural = "device" if point.devices == 1 else "devices"
        yield from (f"{point.devices} {plural}: {warning}" for warning in point.warnings)
