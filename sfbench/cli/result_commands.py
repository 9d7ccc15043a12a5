"""``sfbench list``, ``show``, ``compare`` and ``report``: from results on disk."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfbench.cli.console import news, put_json, put_text, say, terminal
from sfbench.cli.parameters import Json, Quiet
from sfbench.cli.results import Format, print_results, write_report
from sfbench.common.errors import UsageError

if TYPE_CHECKING:
    from sfbench.common.schema import SweepResult
    from sfbench.report.comparison import Outcome

MOST_OF_A_NAME = 120
"""Of several results a report's name is made of; file systems allow 255 bytes."""
OUTCOMES: Mapping[Outcome, int] = {"good": 0, "regression": 1, "undecided": 3}

Output = Annotated[
    Path | None,
    typer.Option(help="folder that results are looked for in [results]", metavar="DIR"),
]
AsFormat = Annotated[
    Format, typer.Option("--format", help="how it is printed", metavar="text|markdown|csv|json")
]


def list_results(output: Output = None, as_json: Json = False) -> None:
    """List the results that there are, the newest first."""
    from sfbench.collect.stored_results import stored_results
    from sfbench.report.listing import listed, render_listing, unreadable

    folder = _folder(output)
    found = stored_results(folder)
    rows = [
        unreadable(one.place) if one.result is None else listed(one.place, one.result)
        for one in found
    ]
    if as_json:
        _print_json({"schema": 1, "results": [dataclasses.asdict(row) for row in rows]})
    elif rows:
        put_text(render_listing(rows, *terminal()))
    else:
        put_text(f"No results in {folder}. `sfbench sweep` makes one.\n")
    for one in found:
        if one.error is not None:
            say(f"sfbench: {one.error}")


def show(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            help="result folders, names of results, or - for a document on stdin [the latest]",
            metavar="[RESULT...]",
        ),
    ] = None,
    output: Output = None,
    shape: AsFormat = Format.TEXT,
    as_json: Json = False,
) -> None:
    """Print the table of stored results again."""
    print_results(_opened(results or [], output), Format.JSON if as_json else shape)


def compare(
    before: Annotated[Path, typer.Argument(help="the result to compare with", metavar="BEFORE")],
    now: Annotated[Path, typer.Argument(help="the result that is judged", metavar="NOW")],
    output: Output = None,
    shape: AsFormat = Format.TEXT,
    as_json: Json = False,
) -> None:
    """Print two results side by side; exit code 1 for a regression, 3 if nothing is decided."""
    from sfbench.report import comparison_text
    from sfbench.report.comparison import compare as compared_with

    one, other = _opened([before, now], output)
    compared = compared_with(other, one)
    if as_json or shape is Format.JSON:
        _print_json({"schema": 1, **dataclasses.asdict(compared)})
    elif shape is Format.MARKDOWN:
        put_text(comparison_text.render_comparison_markdown(compared))
    elif shape is Format.CSV:
        put_text(comparison_text.render_comparison_csv(compared))
    else:
        put_text(comparison_text.render_comparison(compared, *terminal()))
    sys.exit(OUTCOMES[compared.outcome])


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="result folders, names of results, or - for a document on stdin",
            metavar="RESULT...",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="where it goes; of several results NAME is all of their names, joined by + "
            "[reports/NAME.html]",
            metavar="FILE",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="a result to compare with, side by side", metavar="RESULT"),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            help="write a Chrome trace of the largest count as well, for ui.perfetto.dev",
            metavar="FILE",
        ),
    ] = None,
    show_it: Annotated[
        bool, typer.Option("--open", help="open it in the browser of this machine")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write one self-contained HTML report of stored results."""
    opened = _opened([*results, *([baseline] if baseline is not None else [])], None)
    loaded = opened[: len(results)]
    title = "+".join(dict.fromkeys(result.name for result in loaded))
    place = output or Path("reports") / f"{_plain(title)[:MOST_OF_A_NAME]}.html"
    write_report(loaded, place, opened[-1] if baseline is not None else None)
    news(f"Report: {place}", quiet=quiet)
    if timeline is not None:
        _write_timeline(results, loaded, timeline)
        news(f"Timeline: {timeline}; open it at ui.perfetto.dev", quiet=quiet)
    if show_it:
        _open(place)


def _write_timeline(named: list[Path], loaded: list[SweepResult], place: Path) -> None:
    from sfbench.collect.stored_results import open_steps
    from sfbench.report.timeline import write_timeline

    if len(named) != 1:
        raise UsageError("--timeline shows one result: name one alone")
    write_timeline(loaded[0], open_steps(named[0], _folder(None)), place)


def _opened(named: list[Path], output: Path | None) -> list[SweepResult]:
    from sfbench.collect.stored_results import STDIN, latest_result, open_result

    if named.count(STDIN) > 1:
        raise UsageError("-: stdin holds one result: name it once")
    folder = _folder(output)
    return [open_result(name, folder) for name in named] or [latest_result(folder)]


def _folder(output: Path | None) -> Path:
    """Where results are: as asked for, else where sweeps of this project put them."""
    from sfbench.plan.settings import load_settings

    return output or load_settings({}, Path.cwd()).output


def _open(place: Path) -> None:
    import webbrowser

    if not webbrowser.open(place.resolve().as_uri()):
        raise UsageError(f"{place}: no browser can be opened here; the report is written")


def _print_json(document: dict[str, Any]) -> None:
    put_json(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _plain(title: str) -> str:
    """As a file name that leads nowhere else: a result may come from anybody."""
    return re.sub(r"[^\w.+=@ -]", "_", title).strip(". ") or "report"
