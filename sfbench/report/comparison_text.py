"""A comparison for a terminal, as markdown and as CSV: the rows that the report shows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping

from rich.table import Table
from rich.text import Text

from sfbench.common.plain_text import markdown_text
from sfbench.common.schema import Interval
from sfbench.common.units import things
from sfbench.report.comparison import (
    FAILED_NOW,
    FASTER,
    SLOWER,
    UNCHANGED,
    VAGUE,
    ComparedRow,
    Comparison,
    Outcome,
)
from sfbench.report.result_text import markdown_table
from sfbench.report.table import natural_width, text_console, without_trailing

_COLOURS = {FASTER: "green", SLOWER: "red", FAILED_NOW: "red", UNCHANGED: "", VAGUE: "yellow"}
_SAID: Mapping[Outcome, str] = {
    "good": "No regression: no device count is slower beyond the intervals.",
    "regression": "Regression: slower beyond the intervals, or failed now.",
    "undecided": "Nothing can be decided.",
}
_COMPARED = ("samples_per_s_before", "samples_per_s_now", "change")
HINT = "Two files measured at two times are a hint, no proof: the gate measures both sides in turn."


def render_comparison(compared: Comparison, width: int, color: bool) -> str:
    """The table, what each part of the step gained or lost, and the outcome."""
    file = io.StringIO()
    console = text_console(file, width, color)
    whole = _table(compared, efficiency=True)
    table = whole if natural_width(console, whole) <= width else _table(compared, efficiency=False)
    text_console(file, max(width, natural_width(console, table)), color).print(table)
    for line in _lines(compared):
        console.print(Text(line))
    return without_trailing(file)


def render_comparison_markdown(compared: Comparison) -> str:
    """For a pull request or a page."""
    columns = ["devices", "before", "now", "change", "efficiency before", "now", "reading"]
    rows = ([str(row.devices), *_figures(row), _reading(row)] for row in compared.rows)
    lines = [*markdown_table(columns, rows), ""]
    lines += [f"- {markdown_text(line)}" for line in _lines(compared)]
    return "\n".join(lines) + "\n"


def render_comparison_csv(compared: Comparison) -> str:
    """One row for each device count, in full digits; an empty cell was not measured."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = [f"{name}{end}" for name in _COMPARED for end in ("", "_low", "_high")]
    writer.writerow(["devices", *names, "verdict", "note"])
    for row in compared.rows:
        intervals = (row.before, row.after, row.change)
        cells = [cell for interval in intervals for cell in _cells(interval)]
        writer.writerow([row.devices, *cells, row.verdict, row.note])
    return file.getvalue()


def _cells(interval: Interval | None) -> list[float | None]:
    return [None] * 3 if interval is None else [interval.value, interval.low, interval.high]


def _table(compared: Comparison, *, efficiency: bool) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold", show_edge=False)
    headings = ["devices", "before", "now", "change"]
    headings += ["efficiency before", "now"] if efficiency else []
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in compared.rows:
        figures = _figures(row) if efficiency else _figures(row)[:3]
        reading = Text(_reading(row), style=_COLOURS.get(row.verdict, ""))
        table.add_row(str(row.devices), *figures, reading)
    return table


def _figures(row: ComparedRow) -> list[str]:
    change = [row.rate_before, row.rate_after, row.rate_change]
    return [*change, row.efficiency_before, row.efficiency_after]


def _reading(row: ComparedRow) -> str:
    return f"{row.verdict} ({row.note})" if row.note else row.verdict


def _lines(compared: Comparison) -> Iterator[str]:
    moved = [part for part in compared.parts if part.moved]
    if moved:
        said = ", ".join(f"{p.part} {p.change} ({p.before} to {p.after})" for p in moved)
        yield f"Step at {things(moved[0].devices, 'device')}, the biggest change first: {said}."
    for difference in compared.differences:
        yield f"Measured differently: {difference}."
    yield _said(compared)
    yield HINT


def _said(compared: Comparison) -> str:
    if compared.outcome != "undecided":
        return _SAID[compared.outcome]
    if not compared.same_script:
        return f"{_SAID['undecided'].rstrip('.')}: two scripts."
    if not compared.same_machine:
        return f"{_SAID['undecided'].rstrip('.')}: two machines, or two ways to scale."
    return f"{_SAID['undecided'].rstrip('.')}: too little is known of the change."
