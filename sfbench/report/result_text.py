"""Results as markdown and as CSV: the rows of the table, and every figure of each point."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from sfbench.collect.point_rows import COLUMNS, point_row
from sfbench.common.plain_text import markdown_text
from sfbench.common.schema import SweepResult
from sfbench.report.result_rows import Row, table_rows
from sfbench.report.sentences import headline, lines_below


def render_results_markdown(results: Sequence[SweepResult]) -> str:
    """A heading, the table and what stands below it, for each result."""
    return "\n".join("\n".join(_markdown(result)) + "\n" for result in results)


def render_results_csv(results: Iterable[SweepResult]) -> str:
    """One row for each point of each result, in full digits; an empty cell was not measured."""
    file = io.StringIO()
    writer = csv.DictWriter(file, ["name", "started_at", *COLUMNS], lineterminator="\n")
    writer.writeheader()
    for result in results:
        about = {"name": result.name, "started_at": result.environment.started_at}
        for point in result.points:
            row = {name: _harmless(value) for name, value in (about | point_row(point)).items()}
            writer.writerow(row)
    return file.getvalue()


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Figures to the right; the text of the last column to the left."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'--:|' * (len(columns) - 1)}---|"
    for row in rows:
        yield f"| {' | '.join(map(markdown_text, row))} |"


def _markdown(result: SweepResult) -> Iterator[str]:
    yield f"### {markdown_text(headline(result))}"
    yield ""
    yield f"{markdown_text(result.name)}, {result.environment.started_at[:16].replace('T', ' ')}"
    yield ""
    rows = table_rows(result)
    headings = [part.heading for part in rows.parts]
    columns = ["devices", "samples/s", "ideal", "efficiency", "step", *headings, "note"]
    yield from markdown_table(columns, map(_cells, rows.rows))
    yield ""
    for line in lines_below(result):
        text = markdown_text(line.text)
        yield f"- **{text}**" if line.kind == "fix" else f"- {text}"


def _cells(row: Row) -> list[str]:
    marks = [row.note] if row.note else []
    marks += ["look here"] if row.look_here else []
    figures = [row.samples_per_s, row.ideal, row.efficiency, row.step]
    return [str(row.devices), *figures, *row.shares, ", ".join(marks)]


def _harmless(value: object) -> object:
    """A spreadsheet takes text that begins with one of these for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in set("=+-@\t\r") else value
