"""``sfbench show`` and ``sfbench report``: from a result on disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from sfbench.cli.parameters import Json
from sfbench.cli.results import print_result, write_report

MOST_OF_A_NAME = 120
"""Of several results a report's name is made of; file systems allow 255 bytes."""


def show(
    result: Annotated[
        Path, typer.Argument(help="a result folder or its sweep.json", metavar="RESULT")
    ],
    as_json: Json = False,
) -> None:
    """Print the table of a stored result again."""
    from sfbench.collect.result import load_result

    print_result(load_result(result), as_json=as_json)


def report(
    results: Annotated[list[Path], typer.Argument(help="result folders", metavar="RESULT...")],
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
) -> None:
    """Write one self-contained HTML report of stored results."""
    from sfbench.collect.result import load_result

    loaded = [load_result(path) for path in results]
    title = "+".join(dict.fromkeys(result.name for result in loaded))
    place = output or Path("reports") / f"{_plain(title)[:MOST_OF_A_NAME]}.html"
    write_report(loaded, place, load_result(baseline) if baseline else None)


def _plain(title: str) -> str:
    """As a file name that leads nowhere else: a result may come from anybody."""
    return re.sub(r"[^\w.+=@ -]", "_", title).strip(". ") or "report"
