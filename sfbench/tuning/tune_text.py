"""A report as text for a terminal, and as markdown. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from sfbench.common import units
from sfbench.common.plain_text import markdown_text
from sfbench.tuning.gain_words import brief, gained, predicted
from sfbench.tuning.tune_report import BestSet, LineToChange, Trial, TrialStatus, TuneReport

_SAID: dict[TrialStatus, str] = {
    "gain": "gain",
    "no-gain": "no gain",
    "unsettled": "not settled",
    "contaminated": "the machine changed",
    "failed": "failed",
    "not-tried": "not tried",
}
HEADINGS = ("settings", "predicted", "measured", "rounds", "")
"""Of the table of trials."""


def render_tune_text(report: TuneReport, width: int) -> str:
    """What helps, what was tried, and the lines to change."""
    lines = [*_wrapped(report.headline, width)]
    for text in remarks(report):
        lines += _wrapped(text, width)
    lines += _table(report)
    for text in reasons(report):
        lines += _wrapped(text, width)
    if report.best is not None:
        lines += ["", *_best(report.best, width)]
    return "\n".join(lines) + "\n"


def render_tune_markdown(report: TuneReport) -> str:
    """The same for a pull request."""
    lines = [f"### {markdown_text(report.headline)}", ""]
    lines += [f"- {markdown_text(text)}" for text in remarks(report)]
    if report.trials:
        lines += ["", "| settings | predicted | measured | rounds | |", "|---|--:|--:|--:|---|"]
        lines += [f"| {' | '.join(map(_cell, row(trial)))} |" for trial in report.trials]
        lines += [""]
    lines += [f"- {markdown_text(text)}" for text in reasons(report)]
    for one in report.best.lines if report.best is not None else ():
        lines += ["", markdown_text(place(one))]
        if one.diff:
            lines += ["```diff", one.diff.replace("```", "'''"), "```"]
    if report.best is not None and report.best.cautions:
        lines += ["", *(f"- {markdown_text(text)}" for text in report.best.cautions)]
    return "\n".join(lines) + "\n"


def remarks(report: TuneReport) -> Iterator[str]:
    """What must be said beside the numbers."""
    if report.emulated:
        yield "The accelerator is emulated."
    if report.oversubscribed:
        many = units.things(report.devices, "device")
        yield f"{many} share cores: gains may be others where each has its own."
    yield from report.notes
    if report.interrupted:
        yield "Interrupted: what had been measured is shown."


def reasons(report: TuneReport) -> Iterator[str]:
    """Why trials failed or were not made, and where the logs are."""
    for trial in report.trials:
        if trial.why:
            yield f"{trial.settings}: {brief(trial.why)}"
    if report.unconfirmed:
        yield f"Not confirmed: {report.unconfirmed}"
    if report.logs is not None:
        yield f"Logs of what failed: {report.logs}"


def _table(report: TuneReport) -> Iterator[str]:
    if not report.trials:
        return
    table = [HEADINGS, *(row(trial) for trial in report.trials)]
    widths = [max(len(line[i]) for line in table) for i in range(len(HEADINGS))]
    for name, *cells, said in table:
        figures = (cell.rjust(width) for cell, width in zip(cells, widths[1:-1], strict=True))
        yield "  ".join([name.ljust(widths[0]), *figures, said]).rstrip()


def row(trial: Trial) -> tuple[str, str, str, str, str]:
    """A line of the table, in the order of ``HEADINGS``."""
    measured = units.MISSING if trial.gain is None else gained(trial.gain)
    return (
        trial.settings,
        predicted(trial.predicted_gain),
        measured,
        str(trial.rounds) if trial.rounds else units.MISSING,
        _SAID[trial.status],
    )


def confirmed(best: BestSet) -> str:
    """The gain of fresh launches beside what was predicted."""
    expected = f", predicted {predicted(best.predicted_gain)}" if best.predicted_gain else ""
    pairs = units.things(best.pairs, "fresh pair")
    return f"Confirmed in {pairs} of launches: {gained(best.gain)}{expected}."


def _best(best: BestSet, width: int) -> Iterator[str]:
    yield from _wrapped(f"{confirmed(best)} Change:", width)
    for one in best.lines:
        yield from _wrapped(place(one), width, "  ")
        yield from (f"    {line}" for line in one.diff.splitlines())
    for caution in best.cautions:
        yield from _wrapped(f"Mind: {caution}.", width)


def place(one: LineToChange) -> str:
    """File, line, call and arguments."""
    where = f"{one.line}: {one.call}" if one.line else one.call
    told = f"{where}: {one.arguments}"
    if one.options:
        told += f" (the script takes it as an option: {one.options})"
    elif one.line and not one.diff and "=" in one.arguments:
        told += " (made through a library or with ** there: give it these arguments)"
    return told


def _cell(text: str) -> str:
    return markdown_text(text)


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent) or [""]
