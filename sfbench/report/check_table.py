"""The table of ``sfbench check``."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sfbench.common.schema import CheckResult

_COLOURS = {"pass": "green", "fail": "red", "warn": "yellow", "not-applicable": "dim"}


def render_checks(checks: Sequence[CheckResult], width: int, color: bool) -> str:
    """A line or more per check: status, id, evidence; then how many failed."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
    )
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        status = "–" if check.status == "not-applicable" else check.status
        table.add_row(Text(status, style=_COLOURS[check.status]), check.id, Text(check.evidence))
    console.print(table)
    console.print(_summary(checks))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _summary(checks: Sequence[CheckResult]) -> str:
    failed = [check.id for check in checks if check.status == "fail"]
    warned = [check.id for check in checks if check.status == "warn"]
    parts = [f"{len(failed)} failed: {', '.join(failed)}."] if failed else ["No check failed."]
    if warned:
        parts.append(f"{len(warned)} warned: {', '.join(warned)}.")
    return " ".join(parts)
