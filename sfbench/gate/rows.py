"""Both sides as rows of text: what the terminal, the pull request and the job summary show."""

from __future__ import annotations

from dataclasses import dataclass

from sfbench import units
from sfbench.gate.model import Estimate, GateReport, SideReport
from sfbench.schema import Interval

_SHARES = (
    ("data loading", "data"), ("communication", "communication"), ("compute", "compute"),
    ("host contention", "host"), ("straggler", "straggler"), ("jitter", "jitter"),
)  # fmt: skip
_ALWAYS = 3
"""Of these that are shown whether they changed or not."""
_CHANGED = 0.02
"""Of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of both sides."""

    name: str
    base: str
    candidate: str
    change: str


def rows(report: GateReport) -> tuple[Row, ...]:
    """The figures of a report, but for those that neither side has."""
    base, candidate = report.base, report.candidate
    if base is None or candidate is None:
        return ()
    found = [
        Row(
            name="samples/s",
            base=units.rate_interval(_interval(base.samples_per_s, base.samples_per_s_interval)),
            candidate=units.rate_interval(
                _interval(candidate.samples_per_s, candidate.samples_per_s_interval)
            ),
            change=change(report.change),
        ),
        Row(
            name="efficiency",
            base=_percent(base.efficiency, base.efficiency_interval),
            candidate=_percent(candidate.efficiency, candidate.efficiency_interval),
            change=units.MISSING,
        ),
        *_shares(base, candidate),
        Row(
            name="loading, per sample",
            base=units.seconds(base.fetch_s_per_sample),
            candidate=units.seconds(candidate.fetch_s_per_sample),
            change=units.MISSING,
        ),
        Row(
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


def _shares(base: SideReport, candidate: SideReport) -> list[Row]:
    """What changed most comes first."""
    shown = [
        share
        for place, share in enumerate(_SHARES)
        if place < _ALWAYS or _moved(share[1], base, candidate) > _CHANGED
    ]
    shown.sort(key=lambda share: -_moved(share[1], base, candidate))
    return [_share(name, part, base, candidate) for name, part in shown]


def _moved(part: str, base: SideReport, candidate: SideReport) -> float:
    """By how much a share differs; 0 where one side has none."""
    before, after = getattr(base.parts, part), getattr(candidate.parts, part)
    return 0.0 if before is None or after is None else abs(after - before)


def _share(name: str, part: str, base: SideReport, candidate: SideReport) -> Row:
    return Row(
        name=f"{name}, of the step",
        base=_part(part, base),
        candidate=_part(part, candidate),
        change=units.MISSING,
    )


def _part(part: str, side: SideReport) -> str:
    value: float | None = getattr(side.parts, part)
    half: float | None = getattr(side.parts_half_width, part)
    if value is None or half is None:
        return units.percent(value)
    return units.percent_interval(Interval(value=value, low=value - half, high=value + half))


def _percent(value: float | None, found: Estimate | None) -> str:
    return units.MISSING if value is None else units.percent_interval(_interval(value, found))


def _interval(value: float, found: Estimate | None) -> Interval:
    if found is None:
        return Interval(value=value, low=None, high=None)
    return Interval(value=found.value, low=found.low, high=found.high)
