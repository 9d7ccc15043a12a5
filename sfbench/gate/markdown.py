"""A report as markdown, for a pull request and for a job's summary. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sfbench.gate.model import GateReport, Verdict
from sfbench.gate.rows import rows
from sfbench.gate.words import calibrated

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
    return data[: MOST_BYTES - 8].decode(errors="ignore") + "\n…\n"


def _lines(report: GateReport) -> Iterator[str]:
    yield f"### {_MARKS[report.verdict]} {_plain(report.headline)}"
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
        yield f"- ⚠️ {_plain(warning)}"
    yield from _small_print(report)


def _small_print(report: GateReport) -> Iterator[str]:
    commits = [
        f"{name} `{side.commit[:12]}`"
        for name, side in (("base", report.base), ("candidate", report.candidate))
        if side is not None and side.commit
    ]
    said = [
        f"`{_plain(report.target)}` against `{_plain(report.against)}`",
        *commits,
        f"margin {100 * report.margin:g} %",
    ]
    if report.verdict == "fail" and report.confirmed:
        said.append("seen again in fresh launches with the checkouts swapped")
    yield ""
    yield f"<sub>{', '.join(said)}. {calibrated(report) or ''}</sub>"


def _reason(reason: str) -> Iterator[str]:
    first, *rest = reason[:MOST_REASON].splitlines()
    yield _plain(first)
    if rest:  # an error with the last lines of a log
        yield "```text"
        yield from (line.replace("```", "'''") for line in rest)
        yield "```"
    yield ""


def _plain(text: str) -> str:
    """What comes from scripts and names must not be taken for markup."""
    return text.replace("<", "&lt;").replace("|", "\\|")
