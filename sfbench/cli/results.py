"""A finished result on stdout, and as a report."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from sfbench.cli.console import put_json, put_text, say, terminal
from sfbench.common.errors import InterruptedSweep, MeasureError, ScriptError, UsageError

if TYPE_CHECKING:
    from sfbench.common.schema import SweepResult


class Format(Enum):
    """How results are printed."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


def print_result(result: SweepResult, *, as_json: bool) -> None:
    """The table, or the document."""
    print_results([result], Format.JSON if as_json else Format.TEXT)


def print_results(results: Sequence[SweepResult], shape: Format) -> None:
    """One or more results; several as text and markdown each have their name above."""
    if shape is Format.JSON:
        put_json(_document(results))
    elif shape is Format.TEXT:
        _print_tables(results)
    else:
        from sfbench.report.result_text import render_results_csv, render_results_markdown

        render = render_results_csv if shape is Format.CSV else render_results_markdown
        put_text(render(results))


def _document(results: Sequence[SweepResult]) -> str:
    from sfbench.collect.result import to_json

    if len(results) == 1:
        return to_json(results[0])
    parts = ",\n".join(to_json(result).rstrip() for result in results)
    return f'{{"schema": 1, "results": [\n{parts}\n]}}\n'


def _print_tables(results: Sequence[SweepResult]) -> None:
    from sfbench.report.table import render_table

    for place, result in enumerate(results):
        if len(results) > 1:
            started = result.environment.started_at[:16].replace("T", " ")
            gap = "\n" if place else ""
            put_text(f"{gap}{result.name}, {started}\n")
        put_text(render_table(result, *terminal()))


def write_report(
    results: list[SweepResult], place: Path, baseline: SweepResult | None = None
) -> None:
    """One HTML page of these results.

    Raises:
        UsageError: it cannot be written.
    """
    from sfbench.common.files import write_whole
    from sfbench.report.html import render_html

    page = render_html(results, baseline)
    try:
        write_whole(place, page)
    except OSError as error:
        raise UsageError(f"{place}: the report cannot be written: {error.strerror}") from error


def sweep_exit_code(result: SweepResult, stored: Path | None) -> int:
    """0 good; 5 if a point failed (4 if none could be measured and no script is to blame).

    2 if all is well but the result could not be written. Says why points failed.
    """
    if result.interrupted:
        return InterruptedSweep.exit_code
    failed = [point for point in result.points if point.status != "ok"]
    if not failed:
        return 0 if stored is not None else UsageError.exit_code
    for point in failed:
        say(f"sfbench: {point.error}")
    if len(failed) == len(result.points) and not any(p.script_fault for p in failed):
        return MeasureError.exit_code
    return ScriptError.exit_code
