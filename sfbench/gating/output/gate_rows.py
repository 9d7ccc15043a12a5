"""Both sides as rows of text: what the terminal, the pull request and the job summary show."""

from __future__ import annotations

from dataclasses import dataclass

from sfbench.analyze.parts import COMMUNICATION, COMPUTE, DATA, PARTS, Part
from sfbench.common import units
from sfbench.common.schema import Interval
from sfbench.gating.gate_report import Estimate, GateReport, SideReport

_ALWAYS = (DATA, COMMUNICATION, COMPUTE)
"""Parts that are shown whether they changed or not."""
_CHANGED = 0.02
"""Of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRow:
    """One figure of both sides."""

    name: str
    base: str
    candidate: str
    change: str


def rows(report: GateReport) -> tuple[GateRow, ...]:
    """The figures of a report, but for those that neither side has."""
    base, candidate = report.base, report.candidate
    if base is None or candidate is None:
        return ()
    found = [
        GateRow(
            name="samples/s",
            base=units.rate_interval(_interval(base.samples_per_s, base.samples_per_s_interval)),
            candidate=units.rate_interval(
                _interval(candidate.samples_per_s, candidate.samples_per_s_interval)
            ),
            change=change(report.change),
        ),
        GateRow(
            name="efficiency",
            base=_percent(base.efficiency, base.efficiency_interval),
            candidate=_percent(candidate.efficiency, candidate.efficiency_interval),
            change=units.MISSING,
        ),
        *_shares(base, candidate),
        GateRow(
            name="loading, per sample",
            base=units.seconds(base.fetch_s_per_sample),
            candidate=units.seconds(candidate.fetch_s_per_sample),
            change=units.MISSING,
        ),
        GateRow(
            name="control (no data loading)",
            base=units.MISSING,
            candidate=units.MISSING,
            change=change(report.control),
        ),
    ]
    return tuple(row for row in found if {row.base, row.candidate, row.change} != {units.MISSING})


def change(at: Estimate | None) -> str:
    """``-23 % (-26 to -20)``."""
    if at is None:
        return units.MISSING
    return f"{100 * at.value:+.0f} % ({100 * at.low:+.0f} to {100 * at.high:+.0f})"


def _shares(base: SideReport, candidate: SideReport) -> list[GateRow]:
    """What changed most comes first."""
    changed = (p for p in PARTS if p not in _ALWAYS and _moved(p, base, candidate) > _CHANGED)
    shown = sorted((*_ALWAYS, *changed), key=lambda part: -_moved(part, base, candidate))
    return [_share(part, base, candidate) for part in shown]


def _moved(part: Part, base: SideReport, candidate: SideReport) -> float:
    """By how much a share differs; 0 if one side has none."""
    before, after = base.parts.get(part.id), candidate.parts.get(part.id)
    return 0.0 if before is None or after is None else abs(after - before)


def _share(part: Part, base: SideReport, candidate: SideReport) -> GateRow:
    return GateRow(
        name=f"{part.label}, of the step",
        base=_part(part, base),
        candidate=_part(part, candidate),
        change=units.MISSING,
    )


def _part(part: Part, side: SideReport) -> str:
    value, half = side.parts.get(part.id), side.parts_half_width.get(part.id)
    if value is None:
        return units.MISSING
    if half is None:
        return units.UNKNOWN
    return units.share(Interval(value=value, low=value - half, high=value + half))


def _percent(value: float | None, found: Estimate | None) -> str:
    return units.MISSING if value is None else units.percent_interval(_interval(value, found))


def _interval(value: float, found: Estimate | None) -> Interval:
    if found is None:
        return Interval(value=value, low=None, high=None)
    return Interval(value=found.value, low=found.low, high=found.high)
