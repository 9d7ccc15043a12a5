"""The table on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sfbench.analyze.parts import Part
from sfbench.common.schema import SweepResult
from sfbench.common.units import MISSING, UNKNOWN
from sfbench.report.result_rows import Row, Rows, table_rows
from sfbench.report.sentences import lines_below

GOOD, FAIR = 90, 70
"""Percent of efficiency from which it is coloured green, and yellow."""
_STYLES = {"emulated": "magenta", "fix": "bold", "check": "yellow", "warning": "yellow"}
UNBOUNDED = 10_000
"""Columns that no table needs."""


def render_table(result: SweepResult, width: int, color: bool) -> str:
    """The table that a sweep ends with, and the sentences below it, for ``width`` columns."""
    file = StringIO()
    console = text_console(file, width, color)
    for number, table in enumerate(_tables(console, table_rows(result))):
        if number:
            console.print()
        # Wider than the terminal at worst: a number is never cut.
        fits = max(width, natural_width(console, table))
        text_console(file, fits, color).print(table)
    for line in lines_below(result):
        console.print(Text(line.text, style=_STYLES.get(line.kind, "")))
    return without_trailing(file)


def text_console(file: StringIO, width: int, color: bool) -> Console:
    """Text as it stands, without markup; ``color`` decides alone whether it is coloured."""
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


def natural_width(console: Console, table: Table) -> int:
    """Columns that a table takes without cutting anything."""
    unbounded = console.options.update(width=UNBOUNDED)
    return console.measure(table, options=unbounded).maximum


def without_trailing(file: StringIO) -> str:
    """What was printed, without blanks at the ends of lines."""
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    heading: str
    cell: Callable[[Row], Text]
    left: bool = False


def _tables(console: Console, rows: Rows) -> list[Table]:
    """One table; if the terminal is narrow, the efficiency stays in the first of several."""
    widest = max((len(_number(row.efficiency)) for row in rows.rows), default=0)
    devices = _Column(heading="devices", cell=lambda row: Text(str(row.devices)))
    rate = _Column(heading="samples/s", cell=_rate)
    ideal = _Column(heading="ideal", cell=lambda row: Text(row.ideal))
    step = _Column(heading="step", cell=lambda row: Text(row.step))
    efficiency = _Column(heading="efficiency", cell=lambda row: _aligned(row, widest), left=True)
    shares = [_share_column(place, part) for place, part in enumerate(rows.parts)]
    mark, short = (_Column(heading="", cell=cell, left=True) for cell in (_mark, _short_mark))
    whole = [devices, rate, ideal, efficiency, step]
    layouts: list[tuple[list[_Column], list[_Column]]] = [
        ([*whole, *shares, mark], []),
        ([*whole, mark], shares),
        ([devices, rate, efficiency, step, mark], shares),
        ([devices, efficiency, rate, short], [step, *shares]),
    ]
    fit = (x for x in layouts if natural_width(console, _table(rows, x[0])) <= console.width)
    first, rest = next(fit, layouts[-1])
    return [_table(rows, first), *_split(console, rows, devices, rest)]


def _split(
    console: Console, rows: Rows, devices: _Column, columns: Sequence[_Column]
) -> Iterator[Table]:
    """As many columns side by side as there is room for."""
    shown: list[_Column] = []
    for column in columns:
        table = _table(rows, [devices, *shown, column])
        if shown and natural_width(console, table) > console.width:
            yield _table(rows, [devices, *shown])
            shown = []
        shown.append(column)
    if shown:
        yield _table(rows, [devices, *shown])


def _table(rows: Rows, columns: Sequence[_Column]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column.heading, justify="left" if column.left else "right", no_wrap=True)
    for row in rows.rows:
        table.add_row(*(column.cell(row) for column in columns))
    return table


def _share_column(place: int, part: Part) -> _Column:
    return _Column(heading=part.heading, cell=lambda row: Text(row.shares[place]))


def _rate(row: Row) -> Text:
    return Text(row.samples_per_s) if row.status == "ok" else Text(row.note, style="red")


def _aligned(row: Row, widest: int) -> Text:
    """Efficiencies are aligned at the percent sign."""
    padding = " " * (widest - len(_number(row.efficiency)))
    return Text(padding + row.efficiency, style=_colour(row.efficiency))


def _number(efficiency: str) -> str:
    return efficiency.split(" ", maxsplit=1)[0]


def _colour(efficiency: str) -> str:
    if efficiency in {MISSING, UNKNOWN}:
        return ""
    percent = float(_number(efficiency).rstrip("%").replace(",", ""))
    return "green" if percent >= GOOD else "yellow" if percent >= FAIR else "red"


def _mark(row: Row) -> Text:
    marks = [row.note] if row.note and row.status == "ok" else []
    marks += ["<- look here"] if row.look_here else []
    return Text("  ".join(marks), style="bold" if row.look_here else "")


def _short_mark(row: Row) -> Text:
    """Without room for words; that devices share cores stands below the table as well."""
    return Text("<-" if row.look_here else "", style="bold")
