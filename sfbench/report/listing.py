"""Many results, a line for each."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from sfbench.common import units
from sfbench.common.schema import Interval, SweepResult
from sfbench.report.result_rows import table_rows
from sfbench.report.table import natural_width, text_console, without_trailing


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResult:
    """One result."""

    name: str
    """Of the folder: what the other commands take."""
    started: str
    target: str
    devices: tuple[int, ...]
    samples_per_s: Interval | None
    """At the largest count that was measured, as is the efficiency."""
    efficiency: Interval | None
    samples_per_s_text: str
    efficiency_text: str
    note: str
    """emulated, failed counts, interrupted; cannot be read."""


def listed(place: Path, result: SweepResult) -> ListedResult:
    """The line of a result."""
    rows = [row for row in table_rows(result).rows if row.status == "ok"]
    largest = rows[-1] if rows else None
    failed = [str(p.devices) for p in result.points if p.status != "ok"]
    point = next((p for p in result.points if largest and p.devices == largest.devices), None)
    notes = ["emulated"] if result.emulated else []
    notes += [f"{', '.join(failed)} failed"] if failed else []
    notes += ["interrupted"] if result.interrupted else []
    return ListedResult(
        name=place.name,
        started=result.environment.started_at[:16].replace("T", " "),
        target=Path(result.target).name,
        devices=tuple(p.devices for p in result.points),
        samples_per_s=point.samples_per_s if point else None,
        efficiency=point.efficiency if point else None,
        samples_per_s_text=largest.samples_per_s if largest else units.MISSING,
        efficiency_text=largest.efficiency if largest else units.MISSING,
        note=", ".join(notes),
    )


def unreadable(place: Path) -> ListedResult:
    """The line of a folder that cannot be read."""
    return ListedResult(
        name=place.name,
        started=units.MISSING,
        target=units.MISSING,
        devices=(),
        samples_per_s=None,
        efficiency=None,
        samples_per_s_text=units.MISSING,
        efficiency_text=units.MISSING,
        note="cannot be read",
    )


def render_listing(rows: Sequence[ListedResult], width: int, color: bool) -> str:
    """For a terminal; narrow ones lose the target, then the counts and the rate."""
    file = io.StringIO()
    console = text_console(file, width, color)
    tables = (_table(rows, left_out) for left_out in range(3))
    table = next((t for t in tables if natural_width(console, t) <= width), _table(rows, 2))
    text_console(file, max(width, natural_width(console, table)), color).print(table)
    return without_trailing(file)


def _table(rows: Sequence[ListedResult], left_out: int) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold", show_edge=False)
    first = ["result", "efficiency", "started"]
    more = [] if left_out > 1 else ["devices", "samples/s"]
    target = [] if left_out else ["target"]
    for heading in (*first, *more, *target, ""):
        right = heading in {"devices", "samples/s"}
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for row in rows:
        counts = ",".join(map(str, row.devices)) or units.MISSING
        cells = [row.name, row.efficiency_text, row.started]
        cells += [counts, row.samples_per_s_text] if more else []
        table.add_row(*cells, *([row.target] if target else []), row.note)
    return table
