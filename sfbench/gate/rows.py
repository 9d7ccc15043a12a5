"""Both sides as rows of text: what the terminal, the pull request and the job summary show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sfbench import units
from sfbench.gate.model import Estimate, GateReport, SideReport

_SHARES = (("data loading", "data"), ("communication", "communication"), ("compute", "compute"))


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
            base=units.rate(base.samples_per_s),
            candidate=units.rate(candidate.samples_per_s),
            change=change(report.change),
        ),
        _row("efficiency", units.percent, base.efficiency, candidate.efficiency),
        *(_share(name, part, base, candidate) for name, part in _SHARES),
        _row(
            "seconds per sample of a loader worker",
            units.seconds,
            base.fetch_s_per_sample,
            candidate.fetch_s_per_sample,
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


def _share(name: str, part: str, base: SideReport, candidate: SideReport) -> Row:
    return _row(
        f"{name}, of the step",
        units.percent,
        getattr(base.parts, part),
        getattr(candidate.parts, part),
    )


def _row(
    name: str, text: Callable[[float | None], str], base: float | None, candidate: float | None
) -> Row:
    return Row(name=name, base=text(base), candidate=text(candidate), change=units.MISSING)
