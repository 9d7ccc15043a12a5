"""The commands of the gate: ``gate``, ``gate record`` and ``gate calibrate``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfbench.cli.console import annotate, news, put_json, put_text, say, terminal
from sfbench.cli.parameters import JOB_OPTIONS, Given, Group, Json, Quiet, takes
from sfbench.common.errors import InterruptedSweep, UsageError
from sfbench.common.files import check_writable
from sfbench.common.plain_text import plain_values
from sfbench.plan.options import GateSettings, Settings

if TYPE_CHECKING:
    from sfbench.common.schema import SweepResult
    from sfbench.gating.gate_observer import GateObserver
    from sfbench.gating.output.writer import Outputs
    from sfbench.gating.runner import GateOutcome
    from sfbench.gating.side_launches import GateJob

EXIT_CODES: Mapping[str, int] = {
    "pass": 0,
    "not-touched": 0,
    "fail": 1,
    "inconclusive": 3,
    "contaminated": 3,
    "not-measured": 4,
    "broken": 5,
}

_JOB = Group(
    model=Settings,
    names=JOB_OPTIONS,
    other_defaults={"threads_per_device": "cores // devices, at least 1"},
)


@takes(Group(model=GateSettings, names=tuple(GateSettings.model_fields)), _JOB)
def gate(  # noqa: PLR0913 - each parameter is an option
    given: Given,
    *,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="a result of the same machine and job, made by `sfbench gate record`",
            metavar="RESULT",
        ),
    ] = None,
    as_json: Json = False,
    report: Annotated[
        Path | None,
        typer.Option(
            help="write an HTML report of both sides; none if nothing was measured",
            metavar="PATH",
        ),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(help="write markdown for a pull request, at most 64 kB", metavar="PATH"),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(
            help="write JUnit XML; if nothing was decided the test is skipped, with the reason",
            metavar="PATH",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Stop a change that makes training slower: script arguments go behind `--`."""
    from sfbench.gating import runner
    from sfbench.gating.output.writer import Outputs

    asked = _asked(given)
    _check_sides(asked, given.gate["base"], baseline, given.gate["paths"])
    outputs = Outputs(report=report, markdown=markdown, junit=junit)
    outputs.check()
    job = _job(given, asked)
    with _watched(quiet=quiet) as observer:
        if baseline is not None:
            from sfbench.collect.result import load_result

            outcome = runner.gate_result(job, load_result(baseline), observer)
        else:
            outcome = runner.gate_commit(job, asked.base or "", observer, paths=asked.paths)
    sys.exit(_tell(outcome, outputs, as_json=as_json, quiet=quiet))


@takes(
    Group(model=GateSettings, names=("seconds",)),
    _JOB,
    Group(model=Settings, names=("name", "output")),
)
def gate_record(
    given: Given,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="replace a result of the same name")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Store a result for `gate --baseline`: script arguments go behind `--`."""
    from rich.console import Console

    from sfbench.cli.progress import TerminalObserver
    from sfbench.gating import runner

    job = _job(given, _asked(given))
    plan = runner.record_plan(job)
    check_writable(plan.output)
    with TerminalObserver(plan, Console(stderr=True, quiet=quiet)) as observer:
        finished = runner.record(job, observer, force=force)
    if as_json:
        from sfbench.collect.result import to_json

        put_json(to_json(finished.result))
    else:
        from sfbench.report.table import render_table

        put_text(render_table(finished.result, *terminal()))
    lacking = finished.stored is None
    if lacking:
        say(f"sfbench: {finished.unwritten}")
    else:
        news(f"Result: {finished.stored}", quiet=quiet)
    sys.exit(_recorded(finished.result) or (UsageError.exit_code if lacking else 0))


@takes(Group(model=GateSettings, names=("margin", "budget", "seconds")), _JOB)
def gate_calibrate(
    given: Given,
    *,
    pairs: Annotated[
        int,
        typer.Option(help="A/A pairs to measure, at least 6 [16]", metavar="N", min=6, max=1000),
    ] = 16,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tell what this machine can and cannot detect: script arguments go behind `--`."""
    from sfbench.gating import calibration_files, runner
    from sfbench.gating.output.terminal import render_calibration

    job = _job(given, _asked(given))
    check_writable(calibration_files.places())
    with _watched(quiet=quiet) as observer:
        found = runner.calibrate_here(job, observer, count=pairs)
    try:
        place, why = calibration_files.store(found), None
    except OSError as error:
        place, why = calibration_files.places(), error.strerror or error
    if as_json:
        put_json(calibration_files.to_json(found))
    else:
        put_text(render_calibration(found, terminal()[0]))
    if why is not None:
        raise UsageError(f"{place}: the calibration cannot be written: {why}")
    news(f"Calibration: {place}", quiet=quiet)


def _asked(given: Given) -> GateSettings:
    """What is special to the gate: from options, else from the settings."""
    from sfbench.plan.settings import load_gate_settings

    return load_gate_settings(given.gate, Path.cwd())


def _check_sides(
    asked: GateSettings, base: str | None, baseline: Path | None, paths: str | None
) -> None:
    if (base is not None and baseline is not None) or (asked.base is None and baseline is None):
        raise UsageError(
            "give one of --base GIT_REF and --baseline RESULT to compare with, or set base in "
            "[tool.sfbench.gate] of pyproject.toml"
        )
    if paths is not None and baseline is not None:
        raise UsageError("--paths needs --base: a stored result does not tell what changed")


def _job(given: Given, asked: GateSettings) -> GateJob:
    """What to run, from the options of a command."""
    from sfbench.gating.runner import gate_job

    command = shlex.join(["sfbench", *sys.argv[1:]])
    return gate_job(given.options, given.script_args, asked, command=command)


@contextmanager
def _watched(*, quiet: bool) -> Iterator[GateObserver]:
    from rich.console import Console

    from sfbench.cli.gate_progress import PairObserver

    with PairObserver(Console(stderr=True, quiet=quiet)) as observer:
        yield observer


def _tell(outcome: GateOutcome, outputs: Outputs, *, as_json: bool, quiet: bool) -> int:
    """To stdout and to everything that was asked for, or that the surroundings offer.

    Returns the exit code: that of the verdict, but 2 if that were 0 and a file is lacking.
    """
    from sfbench.gating.conclusion import to_json
    from sfbench.gating.output.terminal import render_text
    from sfbench.gating.output.writer import write_outputs

    told = plain_values(outcome.report)
    outcome = replace(outcome, report=told)
    written: list[str] = []
    lacking = write_outputs(outcome, outputs, written.append)
    if as_json:
        put_json(to_json(told))
    else:
        width, color = terminal()
        put_text(render_text(told, width, color=color))
    _tell_github(outcome)
    for text in written:
        news(text, quiet=quiet)
    for text in lacking:
        say(f"sfbench: {text}")
    return EXIT_CODES[told.verdict] or (UsageError.exit_code if lacking else 0)


def _tell_github(outcome: GateOutcome) -> None:
    from sfbench.gating.output.actions import annotation_lines
    from sfbench.gating.output.writer import append_summary

    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in annotation_lines(outcome.report):
            annotate(line)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    lacking = append_summary(outcome, Path(summary)) if summary else None
    if lacking is not None:  # nobody asked for it here: it changes no exit code
        say(f"sfbench: {lacking}")


def _recorded(result: SweepResult) -> int:
    """0 if each point has figures; such a result can be compared with."""
    if result.interrupted:
        return InterruptedSweep.exit_code
    failed = [point for point in result.points if point.status != "ok"]
    for point in failed:
        say(f"sfbench: {point.error}")
    if not failed:
        return 0
    return 5 if any(point.script_fault for point in failed) else 4
