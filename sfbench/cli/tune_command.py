"""``sfbench tune``."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfbench.cli.console import news, put_json, put_text, say, terminal
from sfbench.cli.parameters import JOB_OPTIONS, Given, Group, Json, Quiet, takes
from sfbench.common.errors import InterruptedSweep, UsageError
from sfbench.common.files import check_writable
from sfbench.plan.options import Settings, TuneSettings

if TYPE_CHECKING:
    from sfbench.common.schema import SweepResult
    from sfbench.tuning.tune_observer import TuneObserver
    from sfbench.tuning.tune_report import TuneReport
    from sfbench.tuning.tuner import TuneJob

TUNE_EXIT_CODES: Mapping[str, int] = {"gain": 0, "nothing-helps": 0, "inconclusive": 3}

_OPTIONS = (
    Group(model=TuneSettings, names=tuple(TuneSettings.model_fields)),
    Group(
        model=Settings,
        names=(*JOB_OPTIONS, "name", "output"),
        other_defaults={
            "devices": "the largest count that the machine has devices for",
            "threads_per_device": "cores // devices, at least 1",
        },
    ),
)


@takes(*_OPTIONS)
def tune(
    given: Given,
    *,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="a result of the same machine and job, in place of a diagnosis of its own",
            metavar="RESULT",
        ),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(help="write the answer as markdown too", metavar="PATH"),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--report",
            help="write an HTML report: what was tried, above that of the diagnosis",
            metavar="PATH",
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Try the remedies of a script's bottlenecks: script arguments go behind `--`."""
    from sfbench.plan.settings import load_tune_settings
    from sfbench.tuning import tuner
    from sfbench.tuning.stored_diagnosis import check_same_job

    began_s = time.monotonic()
    asked = load_tune_settings(given.gate, Path.cwd())
    command = shlex.join(["sfbench", *sys.argv[1:]])
    stored_result = None if from_ is None else _opened(from_, given)
    job = tuner.tune_job(
        given.options, given.script_args, asked, command=command, result=stored_result
    )
    for place in filter(None, (markdown, page)):
        check_writable(place.parent)
    with _watched(quiet=quiet) as observer:
        result, stored = (
            (stored_result, from_) if stored_result else _diagnosis(job, observer, began_s)
        )
        if stored_result is not None:
            check_same_job(job, stored_result)
        report = tuner.run_tune(job, result, observer, stored=stored, began_s=began_s)
    code = _tell_tune(report, as_json=as_json)
    for place, text in _files(report, result, markdown, page):
        failed = _written(place, text, quiet=quiet)
        code = code or failed
    if report.result is not None:
        news(f"Diagnosis: {report.result}", quiet=quiet)
    sys.exit(code)


def _opened(named: Path, given: Given) -> SweepResult:
    from sfbench.collect.stored_results import open_result
    from sfbench.plan.settings import load_settings

    return open_result(named, load_settings({"output": given.options["output"]}, Path.cwd()).output)


def _diagnosis(
    job: TuneJob, observer: TuneObserver, began_s: float
) -> tuple[SweepResult, Path | None]:
    """The result of a sweep that candidates follow from, and where it lies."""
    from sfbench.collect.result_folder import check_free
    from sfbench.tuning import tuner

    check_writable(job.plan.output)
    check_free(job.plan.result_dir, replace=False)
    finished = tuner.diagnosed(job, observer, began_s)
    if finished.stored is None:
        say(f"sfbench: {finished.unwritten}")
    return finished.result, finished.stored


@contextmanager
def _watched(*, quiet: bool) -> Iterator[TuneObserver]:
    from rich.console import Console

    from sfbench.cli.tune_progress import TrialObserver

    with TrialObserver(Console(stderr=True, quiet=quiet)) as observer:
        yield observer


def _tell_tune(report: TuneReport, *, as_json: bool) -> int:
    """To stdout; returns the exit code."""
    from sfbench.tuning.tune_report import to_json
    from sfbench.tuning.tune_text import render_tune_text

    if as_json:
        put_json(to_json(report))
    else:
        put_text(render_tune_text(report, terminal()[0]))
    return InterruptedSweep.exit_code if report.interrupted else TUNE_EXIT_CODES[report.verdict]


def _files(
    report: TuneReport, result: SweepResult, markdown: Path | None, page: Path | None
) -> Iterator[tuple[Path, str]]:
    """Those that were asked for, with their text."""
    from sfbench.tuning.tune_text import render_tune_markdown

    if markdown is not None:
        yield markdown, render_tune_markdown(report)
    if page is not None:
        from sfbench.tuning.tune_page import render_tune_page

        yield page, render_tune_page(report, result)


def _written(place: Path, text: str, *, quiet: bool) -> int:
    """Write a file; the exit code if that is not possible, else 0."""
    from sfbench.common.files import write_whole

    try:
        write_whole(place, text)
    except OSError as error:
        say(f"sfbench: {place}: cannot be written: {error.strerror or error}")
        return UsageError.exit_code
    news(f"{'Report' if place.suffix == '.html' else 'Markdown'}: {place}", quiet=quiet)
    return 0
