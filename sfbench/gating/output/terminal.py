"""A report, and a calibration, as text for a terminal. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from sfbench.common import units
from sfbench.common.units import things
from sfbench.gating.gate_report import GateReport, Verdict
from sfbench.gating.output.gate_rows import GateRow, rows
from sfbench.gating.output.words import TITLES, calibrated, rate
from sfbench.gating.statistics.calibration import Calibration

_COLOURS: dict[Verdict, str] = {
    "pass": "32", "not-touched": "32", "fail": "31", "broken": "31", "not-measured": "31",
    "inconclusive": "33", "contaminated": "33",
}  # fmt: skip


def render_text(report: GateReport, width: int, *, color: bool) -> str:
    """Verdict, why, the figures of both sides, and what to be careful with."""
    lines = list(_wrapped(report.headline, width))
    if color:
        title = TITLES[report.verdict]
        lines[0] = lines[0].replace(title, f"\x1b[1;{_COLOURS[report.verdict]}m{title}\x1b[0m", 1)
    for reason in report.reasons:
        lines += _wrapped(reason, width)
    if report.verdict == "fail" and report.confirmed:
        lines += _wrapped("Seen again in fresh launches, with the checkouts swapped.", width)
    lines += _table(rows(report))
    for warning in report.warnings:
        lines += _wrapped(f"warning: {warning}", width)
    quoted = calibrated(report)
    lines += _wrapped(quoted, width) if quoted else []
    return "\n".join(lines) + "\n"


def render_calibration(found: Calibration, width: int) -> str:
    """What this machine can and cannot detect."""
    pairs = len({slot.pair for slot in found.slots})
    margin = units.percent(found.margin)
    lines = [
        f"{pairs} A/A pairs of {found.fingerprint.target} at "
        f"{things(found.fingerprint.devices, 'device')}, "
        f"{units.duration(found.pair_s)} each.",
        f"At a margin of {margin} and a budget of {found.budget_s:.0f} s:",
        f"  false FAIL    {rate(found.false_fail)}",
        f"  PASS          {100 * found.passed.value:.1f} % of unchanged candidates",
        f"  caught        {_caught(found)}",
        f"The control may differ by {100 * found.control_band:.1f} % between equal sides.",
        f"Suggested: {_suggested(found)}",
    ]
    return "\n".join(line for text in lines for line in _wrapped(text, width)) + "\n"


def _caught(found: Calibration) -> str:
    if found.caught is None:
        return "no slow-down is caught in 95 of 100 runs: a quieter machine or more budget may"
    return f"a slow-down of {units.percent(found.caught)} or more, in 95 of 100 runs"


def _suggested(found: Calibration) -> str:
    if found.suggested_margin is None:
        return "no margin works here: unchanged candidates would not pass. Free the machine."
    return (
        f"--margin {units.percent(found.suggested_margin)} --budget {found.suggested_budget_s:.0f}"
    )


def _table(found: Sequence[GateRow]) -> Iterator[str]:
    if not found:
        return
    table = [("", "base", "candidate", "change")]
    table += [(row.name, row.base, row.candidate, row.change) for row in found]
    widths = [max(len(line[i]) for line in table) for i in range(4)]
    for name, *cells in table:
        figures = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join([name.ljust(widths[0]), *figures]).rstrip()


def _wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of a text; an error's own lines stay as they are."""
    for line in text.splitlines():
        own = line.startswith("    ")
        yield from [line] if own else textwrap.wrap(line, width) or [""]
