"""The files that a gate writes beside its answer: markdown, JUnit XML, HTML, a job's summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sfbench.common.errors import UsageError
from sfbench.common.files import check_writable, write_whole
from sfbench.gating.runner import GateOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Where the files go; None: not asked for."""

    report: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None

    def check(self) -> None:
        """Refuse before anything is measured what could not be written afterwards.

        Raises:
            UsageError: a folder that cannot be written to, or a folder in place of a file; two
                outputs in one file.
        """
        taken: dict[Path, str] = {}
        for option, place in (
            ("--report", self.report), ("--markdown", self.markdown), ("--junit", self.junit),
        ):  # fmt: skip
            if place is None:
                continue
            if place.is_dir():
                raise UsageError(f"{option} {place}: this is a folder, give a file in it")
            other = taken.setdefault(place.resolve(), option)
            if other != option:
                raise UsageError(f"{other} and {option} name the same file: {place}")
            check_writable(place.parent)


def write_outputs(
    outcome: GateOutcome, outputs: Outputs, say: Callable[[str], None]
) -> tuple[str, ...]:
    """Write all that was asked for; what could not be written is told, and keeps back no other."""
    return tuple(
        told
        for place, write in _writers(outcome, outputs, say)
        if (told := _tried(place, write)) is not None
    )


def append_summary(outcome: GateOutcome, place: Path) -> str | None:
    """Add the markdown to a job's summary; why not, if that fails."""
    from sfbench.gating.output.markdown import render_markdown

    def append() -> None:
        with place.open("a", encoding="utf-8") as file:
            file.write(render_markdown(outcome.report))

    return _tried(place, append)


def _writers(
    outcome: GateOutcome, outputs: Outputs, say: Callable[[str], None]
) -> Iterator[tuple[Path, Callable[[], None]]]:
    from sfbench.gating.output.junit import render_junit
    from sfbench.gating.output.markdown import render_markdown

    if outputs.markdown is not None:
        text = render_markdown(outcome.report)
        yield outputs.markdown, partial(write_whole, outputs.markdown, text)
    if outputs.junit is not None:
        text = render_junit(outcome.report)
        yield outputs.junit, partial(write_whole, outputs.junit, text)
    if outputs.report is not None:
        yield outputs.report, partial(_write_html, outcome, outputs.report, say)


def _tried(place: Path, write: Callable[[], None]) -> str | None:
    try:
        write()
    except OSError as error:
        return f"{place}: cannot be written: {error.strerror or error}"
    return None


def _write_html(outcome: GateOutcome, place: Path, say: Callable[[str], None]) -> None:
    from sfbench.gating.output.gate_rows import rows
    from sfbench.report.html import render_html

    if outcome.candidate is None:
        say(f"No report: nothing was measured, {place} is not written")
        return
    told = outcome.report
    verdict = (told.headline, *told.reasons, *told.warnings)
    figures = [(row.name, row.base, row.candidate, row.change) for row in rows(told)]
    page = render_html([outcome.candidate], outcome.base, verdict=verdict, figures=figures)
    write_whole(place, page)
    say(f"Report: {place}")
