"""Annotations of GitHub Actions: lines that its log turns into marks on a pull request. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from sfbench.gating.gate_report import GateReport, Verdict

MOST = 10
"""Of each step GitHub shows ten."""
_LEVELS: dict[Verdict, str] = {
    "fail": "error", "broken": "error", "not-measured": "error",
    "inconclusive": "warning", "contaminated": "warning", "pass": "notice", "not-touched": "notice",
}  # fmt: skip


def annotation_lines(report: GateReport) -> tuple[str, ...]:
    """The verdict with all its reasons is one, since its parts move together; then warnings."""
    return tuple(islice(_all(report), MOST))


def _all(report: GateReport) -> Iterator[str]:
    text = " ".join([report.headline, *report.reasons])
    yield _line(_LEVELS[report.verdict], "sfbench gate", text)
    for warning in report.warnings:
        yield _line("warning", "sfbench gate", warning)


def _line(level: str, title: str, text: str) -> str:
    data = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{level} title={title}::{data}"
