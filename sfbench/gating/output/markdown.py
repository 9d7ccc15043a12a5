"""A report as markdown, for a pull request and for a job's summary. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sfbench.common.plain_text import markdown_text
from sfbench.gating.gate_report import GateReport, Verdict
from sfbench.gating.output.gate_rows import rows
from sfbench.gating.output.words import calibrated

MOST_BYTES = 64_000
"""A comment on a pull request takes 65,536 characters."""
MOST_REASON = 4_000
"""Characters of a reason: an error carries the last lines of a log."""

_MARKS: dict[Verdict, str] = {
    "pass": "✅", "not-touched": "⏭️", "fail": "❌", "broken": "❌", "not-measured": "❌",
    "inconclusive": "❔", "contaminated": "❔",
}  # fmt: skip


def render_markdown(report: GateReport) -> str:
    """At most 64 kB."""
    text = "\n".join(_lines(report)) + "\n"
    data = text.encode()
    if len(data) <= MOST_BYTES:
        return text
    cut = data[: MOST_BYTES - 16].decode(errors="ignore")
    fence = "\n```" if cut.count("\n```") % 2 else ""
    return f"{cut}{fence}\n…\n"


def _lines(report: GateReport) -> Iterator[str]:
    yield f"### {_MARKS[report.verdict]} {markdown_text(report.headline)}"
    yield ""
    for reason in report.reasons:
        yield from _reason(reason)
    found = rows(report)
    if found:
        yield "| | base | candidate | change |"
        yield "|---|--:|--:|--:|"
        for row in found:
            yield f"| {row.name} | {row.base} | {row.candidate} | {row.change} |"
        yield ""
    for warning in report.warnings:
        yield f"- ⚠️ {markdown_text(warning)}"
    yield from _small_print(report)


def _small_print(report: GateReport) -> Iterator[str]:
    commits = [
        f"{name} {_code(_short(side.commit))}"
        for name, side in (("base", report.base), ("candidate", report.candidate))
        if side is not None and side.commit
    ]
    said = [
        f"{_code(report.target)} against {_code(report.against)}",
        *commits,
        f"margin {100 * report.margin:g} %",
    ]
    if report.verdict == "fail" and report.confirmed:
        said.append("seen again in fresh launches with the checkouts swapped")
    yield ""
    yield f"<sub>{', '.join(said)}. {calibrated(report) or ''}</sub>"


def _short(commit: str) -> str:
    """``0123456789ab+dirty``."""
    name, plus, dirty = commit.partition("+")
    return f"{name[:12]}{plus}{dirty}"


def _reason(reason: str) -> Iterator[str]:
    first, *rest = reason[:MOST_REASON].splitlines() or [""]
    yield markdown_text(first)
    if rest:  # an error with the last lines of a log
        yield "```text"
        yield from (line.replace("```", "'''") for line in rest)
        yield "```"
    yield ""


def _code(text: str) -> str:
    """A name as it is, in a code span."""
    return f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', '')}`"
