"""A finished result on stdout, and as a report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sfbench.cli.console import say, terminal
from sfbench.common.errors import UsageError

if TYPE_CHECKING:
    from sfbench.common.schema import SweepResult


def print_result(result: SweepResult, *, as_json: bool) -> None:
    """The table, or the document."""
    if as_json:
        from sfbench.collect.result import to_json

        sys.stdout.write(to_json(result))
        return
    from sfbench.report.table import render_table

    sys.stdout.write(render_table(result, *terminal()))


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
    say(f"Report: {place}")
