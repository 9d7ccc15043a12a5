"""The commands of the gate: ``gate``, ``gate record`` and ``gate calibrate``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfbench.console import check_writable, say, terminal
from sfbench.errors import InterruptedSweep, UsageError

if TYPE_CHECKING:
    from sfbench.gate_launches import GateJob, GateObserver
    from sfbench.gate_outputs import Outputs
    from sfbench.gating import GateOutcome
    from sfbench.schema import SweepResult

EXIT_CODES: Mapping[str, int] = {
    "pass": 0,
    "not-touched": 0,
    "fail": 1,
    "inconclusive": 3,
    "contaminated": 3,
    "not-measured": 4,
    "broken": 5,
}

Target = Annotated[str, typer.Argument(help="A reference workload or a training script.")]
Devices = Annotated[
    str | None, typer.Option(help="The largest count is measured. [1,2,4,8]", metavar="N,N,…")
]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda. [auto]")]
Threads = Annotated[int | None, typer.Option(help="Of each device. [cores // devices]")]
Seconds = Annotated[float, typer.Option(help="Measuring budget of one launch.", min=0.5)]
Timeout = Annotated[
    float | None, typer.Option(help="Seconds without progress that mean a hang. [300]")
]
Margin = Annotated[
    str, typer.Option(help="Slower by more than this fails: 8% or 0.08.", metavar="RATIO")
]
Budget = Annotated[float, typer.Option(help="Wall time in seconds for all pairs.", min=1.0)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def gate(  # noqa: PLR0913, PLR0917 - each parameter is an option
    context: typer.Context,
    target: Target,
    base: Annotated[
        str | None, typer.Option(help="Compare the working tree with this commit, side by side.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Compare with a stored result of this machine.")
    ] = None,
    margin: Margin = "8%",
    min_efficiency: Annotated[
        str | None, typer.Option(help="An absolute floor: 85% or 0.85.", metavar="RATIO")
    ] = None,
    budget: Budget = 180.0,
    seconds: Seconds = 2.5,
    paths: Annotated[
        str | None,
        typer.Option(help="Measure only if a change touches these: 'data/**,transforms.py'."),
    ] = None,
    devices: Devices = None,
    device: Device = None,
    threads_per_device: Threads = None,
    timeout: Timeout = None,
    as_json: Json = False,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report of both sides.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write markdown for a pull request.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML.")] = None,
) -> None:
    """Stop a change that makes training slower: script arguments go behind `--`."""
    from sfbench import gating
    from sfbench.gate.paths import parse
    from sfbench.gate_outputs import Outputs

    _check_sides(base, baseline, paths)
    outputs = Outputs(report=report, markdown=markdown, junit=junit)
    outputs.check()
    job = _job(
        context,
        {
            "target": target, "devices": devices, "device": device,
            "threads_per_device": threads_per_device, "timeout": timeout,
        },
        margin=margin, min_efficiency=min_efficiency, budget=budget, seconds=seconds,
    )  # fmt: skip
    with _watched() as observer:
        if baseline is not None:
            from sfbench.collect.result import load_result

            outcome = gating.gate_result(job, load_result(baseline), observer)
        else:
            wanted = parse(paths) if paths is not None else ()
            outcome = gating.gate_commit(job, base or "", observer, paths=wanted)
    sys.exit(_tell(outcome, outputs, as_json=as_json))


def gate_record(  # noqa: PLR0913, PLR0917 - each parameter is an option
    context: typer.Context,
    target: Target,
    devices: Devices = None,
    device: Device = None,
    threads_per_device: Threads = None,
    seconds: Seconds = 2.5,
    timeout: Timeout = None,
    name: Annotated[str | None, typer.Option(help="Name of the result. [target and time]")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for result folders. [results]")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a result of the same name.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Store a result for `gate --baseline`: script arguments go behind `--`."""
    from rich.console import Console

    from sfbench import gating
    from sfbench.progress import TerminalObserver

    job = _job(
        context,
        {
            "target": target, "devices": devices, "device": device, "timeout": timeout,
            "threads_per_device": threads_per_device, "name": name, "output": output,
        },
        seconds=seconds,
    )  # fmt: skip
    with TerminalObserver(gating.record_plan(job), Console(stderr=True)) as observer:
        finished = gating.record(job, observer, force=force)
    if as_json:
        from sfbench.collect.result import to_json

        sys.stdout.write(to_json(finished.result))
    else:
        from sfbench.report.table import render_table

        sys.stdout.write(render_table(finished.result, *terminal()))
    say(f"Result: {finished.folder}")
    sys.exit(_recorded(finished.result))


def gate_calibrate(  # noqa: PLR0913, PLR0917 - each parameter is an option
    context: typer.Context,
    target: Target,
    pairs: Annotated[int, typer.Option(help="A/A pairs to measure.", min=6, max=1000)] = 16,
    margin: Margin = "8%",
    budget: Budget = 180.0,
    seconds: Seconds = 2.5,
    devices: Devices = None,
    device: Device = None,
    threads_per_device: Threads = None,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Tell what this machine can and cannot detect: script arguments go behind `--`."""
    from sfbench import gating
    from sfbench.gate import calibrations
    from sfbench.gate.text import render_calibration

    job = _job(
        context,
        {
            "target": target, "devices": devices, "device": device,
            "threads_per_device": threads_per_device, "timeout": timeout,
        },
        margin=margin, budget=budget, seconds=seconds,
    )  # fmt: skip
    check_writable(calibrations.places())
    with _watched() as observer:
        found = gating.calibrate_here(job, observer, count=pairs)
    if as_json:
        sys.stdout.write(calibrations.to_json(found))
    else:
        sys.stdout.write(render_calibration(found, terminal()[0]))
    try:
        place = calibrations.store(found)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(
            f"{calibrations.places()}: the calibration cannot be written: {why}"
        ) from error
    say(f"Calibration: {place}")


def ratio(text: str, option: str) -> float:
    """``8%``, ``8 %`` or ``0.08``.

    Raises:
        UsageError: no number above 0 and below 1 (100 %).
    """
    plain = text.strip()
    percent = plain.endswith("%")
    try:
        value = float(plain.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise UsageError(f"{option} {text!r}: give a percentage or a ratio, as in 8% or 0.08")
    return value


def _check_sides(base: str | None, baseline: Path | None, paths: str | None) -> None:
    if (base is None) == (baseline is None):
        raise UsageError("give one of --base GIT_REF and --baseline RESULT to compare with")
    if paths is not None and base is None:
        raise UsageError("--paths needs --base: a stored result does not tell what changed")


def _job(
    context: typer.Context,
    given: dict[str, Any],
    *,
    seconds: float,
    margin: str = "8%",
    budget: float = 180.0,
    min_efficiency: str | None = None,
) -> GateJob:
    """What to run, from the options of a command."""
    from sfbench.gate.model import GateOptions
    from sfbench.gating import gate_job

    options = GateOptions(
        margin=ratio(margin, "--margin"),
        budget_s=budget,
        seconds=seconds,
        min_efficiency=None
        if min_efficiency is None
        else ratio(min_efficiency, "--min-efficiency"),
    )
    command = shlex.join(["sfbench", *sys.argv[1:]])
    return gate_job(given, context.obj or (), options, command=command)


@contextmanager
def _watched() -> Iterator[GateObserver]:
    from rich.console import Console

    from sfbench.gate_progress import PairObserver

    with PairObserver(Console(stderr=True)) as observer:
        yield observer


def _tell(outcome: GateOutcome, outputs: Outputs, *, as_json: bool) -> int:
    """To stdout and to everything that was asked for, or that the surroundings offer.

    Returns the exit code: that of the verdict, but 2 where that were 0 and a file is lacking.
    """
    from sfbench.gate.report import to_json
    from sfbench.gate.text import render_text
    from sfbench.gate_outputs import write_outputs

    told = outcome.report
    if as_json:
        sys.stdout.write(to_json(told))
    else:
        width, color = terminal()
        sys.stdout.write(render_text(told, width, color=color))
    _tell_github(outcome)
    lacking = write_outputs(outcome, outputs)
    for text in lacking:
        say(f"sfbench: {text}")
    return EXIT_CODES[told.verdict] or (UsageError.exit_code if lacking else 0)


def _tell_github(outcome: GateOutcome) -> None:
    from sfbench.gate.actions import annotation_lines
    from sfbench.gate_outputs import append_summary

    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in annotation_lines(outcome.report):
            say(line)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    lacking = append_summary(outcome, Path(summary)) if summary else None
    if lacking is not None:  # nobody asked for it here: it changes no exit code
        say(f"sfbench: {lacking}")


def _recorded(result: SweepResult) -> int:
    """0 where each point has figures; such a result can be compared with."""
    if result.interrupted:
        return InterruptedSweep.exit_code
    failed = [point for point in result.points if point.status != "ok"]
    for point in failed:
        say(f"sfbench: {point.error}")
    if not failed:
        return 0
    return 5 if any(point.script_fault for point in failed) else 4
