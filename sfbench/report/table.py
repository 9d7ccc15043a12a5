"""The table on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sfbench.common.schema import SweepResult
from sfbench.common.units import MISSING
from sfbench.report.result_rows import Row, Rows, table_rows
from sfbench.report.sentences import EMULATED, oversubscribed, verdict

GOOD, FAIR = 90, 70
"""Percent of efficiency from which it is coloured green, and yellow."""
UNBOUNDED = 10_000
"""Columns that no table needs."""


def render_table(result: SweepResult, width: int, color: bool) -> str:
    """The table that a sweep ends with, and the sentences below it, for ``width`` columns."""
    file = StringIO()
    console = _console(file, width, color)
    for number, table in enumerate(_tables(console, table_rows(result))):
        if number:
            console.print()
        # Wider than the terminal at worst: a number is never cut.
        natural = _natural_width(console, table)
        _console(file, max(width, natural), color).print(table)
    for line in _lines(result):
        console.print(line)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _console(file: StringIO, width: int, color: bool) -> Console:
    return Console(
        file=file,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _tables(console: Console, rows: Rows) -> tuple[Table, ...]:
    """One table; where the terminal is too narrow, the time shares in a second one below."""
    whole = _table(rows, figures=True, shares=True, ideal=True)
    if _natural_width(console, whole) <= console.width:
        return (whole,)
    figures = _table(rows, figures=True, shares=False, ideal=True)
    if _natural_width(console, figures) > console.width:
        figures = _table(rows, figures=True, shares=False, ideal=False)
    return (figures, _table(rows, figures=False, shares=True, ideal=False))


def _natural_width(console: Console, table: Table) -> int:
    unbounded = console.options.update(width=UNBOUNDED)
    return console.measure(table, options=unbounded).maximum


def _table(rows: Rows, *, figures: bool, shares: bool, ideal: bool) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold", show_edge=False)
    table.add_column("devices", justify="right", no_wrap=True)
    if figures:
        table.add_column("samples/s", justify="right", no_wrap=True)
        if ideal:
            table.add_column("ideal", justify="right", no_wrap=True)
        table.add_column("efficiency", justify="left", no_wrap=True)
        table.add_column("step", justify="right", no_wrap=True)
    for part in rows.parts if shares else ():
        table.add_column(part.heading, justify="right", no_wrap=True)
    if figures:
        table.add_column("", justify="left", no_wrap=True)
    widest = max((len(_number(row.efficiency)) for row in rows.rows), default=0)
    for row in rows.rows:
        cells = [Text(str(row.devices)), *(_figures(row, ideal, widest) if figures else ())]
        cells += [Text(cell) for cell in row.shares] if shares else []
        table.add_row(*cells, *([_mark(row)] if figures else []))
    return table


def _figures(row: Row, ideal: bool, widest: int) -> Iterator[Text]:
    """Cells of the figures; efficiencies are aligned at the percent sign."""
    failed = row.status != "ok"
    yield Text(row.note, style="red") if failed else Text(row.samples_per_s)
    if ideal:
        yield Text(row.ideal)
    padding = " " * (widest - len(_number(row.efficiency)))
    yield Text(padding + row.efficiency, style=_colour(row.efficiency))
    yield Text(row.step)


def _number(efficiency: str) -> str:
    return efficiency.split(" ", maxsplit=1)[0]


def _colour(efficiency: str) -> str:
    if efficiency == MISSING:
        return ""
    percent = float(_number(efficiency).rstrip("%").replace(",", ""))
    return "green" if percent >= GOOD else "yellow" if percent >= FAIR else "red"


def _mark(row: Row) -> Text:
    marks = [row.note] if row.note and row.status == "ok" else []
    marks += ["<- look here"] if row.look_here else []
    return Text("  ".join(marks), style="bold" if row.look_here else "")


def _lines(result: SweepResult) -> Iterator[Text]:
    if result.emulated:
        yield Text(EMULATED, style="magenta")
    for sentence in (*oversubscribed(result), *verdict(result)):
        yield Text(sentence, style="bold" if sentence.startswith("Fix first") else "")
    for check in result.checks:
        if check.status in {"fail", "warn"}:
            yield Text(f"Check {check.id}: {check.status}. {check.evidence}", style="yellow")
    for warning in result.warnings:
        yield Text(f"Warning: {warning}", style="yellow")
    for point in result.points:
        for warning in point.warnings:
            plural = "device" if point.devices == 1 else "devices"
            yield Text(f"Warning: {point.devices} {plural}: {warning}", style="yellow")
