"""The command line: the only place that prints results and sets exit codes."""

from __future__ import annotations

import re
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from sfbench import __version__
from sfbench.cli import gate_command
from sfbench.cli.console import outlets, say, terminal
from sfbench.cli.endings import CommandGroup, Unexpected, terminated_like_interrupted, told
from sfbench.common.errors import InterruptedSweep, ScriptError, SfbenchError, UsageError
from sfbench.common.files import check_writable

if TYPE_CHECKING:
    from sfbench.common.schema import SweepResult
    from sfbench.plan.sweep_plan import SweepPlan
    from sfbench.run.sweep import FinishedSweep


app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Did adding devices make training faster, and if not, what ate it?",
)

_BELOW_GATE = (["gate", "record"], ["gate", "calibrate"])
"""Two words that are one command: ``gate`` itself takes a target."""

MOST_OF_A_NAME = 120
"""Of several results a report's name is made of; file systems allow 255 bytes."""

_script_args: tuple[str, ...] = ()
"""What stood behind ``--`` on the command line."""


def main(argv: list[str] | None = None) -> NoReturn:
    """Entry point of ``sfbench``: run a command, turn deliberate errors into text and exit code."""
    global _script_args  # noqa: PLW0603 - click knows no place for what belongs to the script
    words = sys.argv[1:] if argv is None else argv
    cut = words.index("--") if "--" in words else len(words)
    own = words[:cut]
    _script_args = tuple(words[cut + 1 :])
    if own[:2] in _BELOW_GATE:
        own = [" ".join(own[:2]), *own[2:]]
    with outlets() as out:
        code = _exit_code_of(own)
        out.flush()
        if out.error is not None:
            say(f"sfbench: stdout: cannot be written: {out.error.strerror or out.error}")
            code = code or UsageError.exit_code
    sys.exit(code)


def _exit_code_of(own: list[str]) -> int | str:
    """Run a command; 1 is for regressions and failed checks, so no error may end with it."""
    try:
        with terminated_like_interrupted():
            _hint_at_script_arguments(own)
    except SfbenchError as error:
        say(f"sfbench: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        say("sfbench: interrupted")
        return InterruptedSweep.exit_code
    except SystemExit as end:
        if end.code == InterruptedSweep.exit_code:
            say("sfbench: interrupted")
        return end.code or 0
    except Unexpected as unexpected:
        return told(unexpected.error)
    return 0


def _hint_at_script_arguments(own: list[str]) -> None:
    """Run a command; where click does not know an argument, say where the script's own belong."""
    try:
        app(own, standalone_mode=True, prog_name="sfbench", obj=_script_args)
    except SystemExit as end:
        if end.code == UsageError.exit_code and own[:1] in (["sweep"], ["check"], ["gate"]):
            say("Arguments of the script go behind `--`: sfbench sweep train.py -- --epochs 3")
        raise


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"sfbench {__version__}")
        raise typer.Exit


@app.command()
def sweep(  # noqa: PLR0913, PLR0917 - each parameter is an option
    target: Annotated[
        str | None, typer.Argument(help="A reference workload or a training script. [vision]")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(help="Device counts, ascending. [1,2,4,8]", metavar="N,N,…")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda. [auto]")] = None,
    scaling: Annotated[str | None, typer.Option(help="weak or strong. [weak]")] = None,
    global_batch: Annotated[
        int | None, typer.Option(help="Samples of all devices (strong scaling).")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Measuring budget per device count. [13]")
    ] = None,
    precision: Annotated[
        float | None, typer.Option(help="Stop a point early at this relative interval. [0.01]")
    ] = None,
    warmup: Annotated[str | None, typer.Option(help="auto, or steps to leave out. [auto]")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="How often the device counts are visited, in turn. [3]")
    ] = None,
    rungs: Annotated[
        str | None, typer.Option(help="all, or train: efficiency without causes. [all]")
    ] = None,
    threads_per_device: Annotated[
        int | None, typer.Option(help="The same at every count. [cores // largest count]")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds without progress that mean a hang. [300]")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the result. [target and time]")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for result folders. [results]")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Where the HTML report goes. [reports/NAME.html]")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no HTML report.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    allow_saves: Annotated[
        bool | None, typer.Option("--allow-saves", help="Let what the script writes stay.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a result of the same name.")
    ] = False,
    suite: Annotated[
        bool, typer.Option("--suite", help="Every reference workload in turn, one report.")
    ] = False,
) -> None:
    """Measure how a training script scales: script arguments go behind `--`."""
    given = {
        "target": target, "devices": devices, "device": device, "scaling": scaling,
        "global_batch": global_batch, "seconds": seconds, "precision": precision,
        "warmup": warmup, "rounds": rounds, "rungs": rungs,
        "threads_per_device": threads_per_device, "timeout": timeout, "name": name,
        "output": output, "allow_saves": allow_saves,
    }  # fmt: skip
    plans = _suite_plans(given) if suite else [_plan(given)]
    if report is not None and not no_report:
        check_writable(report.parent)
    finished = _run_all(plans, replace=force)
    if suite and as_json:
        _print_suite([f.result for f in finished])
    else:
        for one in finished:
            _print_result(one.result, as_json=as_json)
    # The table comes first: should the report fail, nothing that was measured is lost.
    if not no_report:
        first = finished[0].stored or plans[0].result_dir
        title = first.name if len(plans) == 1 else _suite_name(plans)
        _write_report([f.result for f in finished], report or Path("reports") / f"{title}.html")
    for one in finished:
        say(f"sfbench: {one.unwritten}" if one.stored is None else _where(one.stored, one.result))
    sys.exit(max(_exit_code(one) for one in finished))


@app.command()
def show(
    result: Annotated[Path, typer.Argument(help="A result folder or its sweep.json.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print the table of a stored result again."""
    from sfbench.collect.result import load_result

    _print_result(load_result(result), as_json=as_json)


@app.command()
def report(
    results: Annotated[list[Path], typer.Argument(help="Result folders.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="[reports/NAME.html, of several NAME+NAME]"),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="A result to compare with, side by side.")
    ] = None,
) -> None:
    """Write one self-contained HTML report of stored results."""
    from sfbench.collect.result import load_result

    loaded = [load_result(path) for path in results]
    title = "+".join(dict.fromkeys(result.name for result in loaded))
    place = output or Path("reports") / f"{_plain(title)[:MOST_OF_A_NAME]}.html"
    _write_report(loaded, place, load_result(baseline) if baseline else None)


def _where(stored: Path, result: SweepResult) -> str:
    if stored.name == result.name:
        return f"Result: {stored}"
    return f"Result: {stored} (the {result.name} that is there stays)"


def _plain(title: str) -> str:
    """As a file name that leads nowhere else: a result may come from anybody."""
    return re.sub(r"[^\w.+=@ -]", "_", title).strip(". ") or "report"


@app.command()
def check(
    target: Annotated[str, typer.Argument(help="A reference workload or a training script.")],
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda. [auto]")] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds without progress that mean a hang. [60]")
    ] = None,
    allow_saves: Annotated[
        bool | None, typer.Option("--allow-saves", help="Let what the script writes stay.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Watch a script at 2 devices for what goes wrong silently: arguments go behind `--`."""
    from sfbench.plan.machine import this_machine
    from sfbench.run.check import DEVICES, NO_PROGRESS_S, run_check, to_json
    from sfbench.run.observer import SilentObserver

    limit_s = NO_PROGRESS_S if timeout is None else timeout
    given = {"target": target, "devices": [DEVICES], "device": device, "timeout": limit_s}
    plan = _plan({**given, "rounds": 1, "allow_saves": allow_saves})
    checked = run_check(plan, this_machine(), SilentObserver())
    if as_json:
        sys.stdout.write(to_json(checked))
    else:
        from sfbench.report.check_table import render_checks

        sys.stdout.write(render_checks(checked.checks, *terminal()))
    if checked.crash is not None:
        say(f"sfbench: {checked.crash}")
        sys.exit(ScriptError.exit_code)
    sys.exit(1 if checked.failed else 0)


app.command("gate")(gate_command.gate)
app.command("gate record")(gate_command.gate_record)
app.command("gate calibrate")(gate_command.gate_calibrate)


@app.command()
def workloads() -> None:
    """List the reference workloads."""
    from sfbench.plan.targets import workloads as known

    for workload in known():
        print(f"{workload.name:12} {workload.summary}")


@app.command()
def info() -> None:
    """Say what this machine offers."""
    from sfbench.plan.machine import this_machine

    machine = this_machine()
    print(f"cores    {machine.usable_cores} ({len(machine.cores)} visible)")
    print(f"GPUs     {', '.join(machine.gpus) or 'none that this torch can use'}")
    print(f"sfbench  {__version__}")


def _plan(given: dict[str, Any]) -> SweepPlan:
    from sfbench.plan.machine import this_machine
    from sfbench.plan.planner import make_plan
    from sfbench.plan.settings import load_settings
    from sfbench.plan.targets import resolve_target

    settings = load_settings(given, Path.cwd())
    target = resolve_target(settings.target, _script_args)
    return make_plan(settings, target, this_machine(), datetime.now())


def _suite_plans(given: dict[str, Any]) -> list[SweepPlan]:
    """One plan for each reference workload; their results are named after it."""
    from sfbench.plan.targets import workloads as known

    if given["target"] is not None or _script_args:
        raise UsageError("--suite runs every reference workload: it takes no TARGET and no `--`.")
    name = given["name"] or f"suite-{datetime.now():%Y%m%d-%H%M%S}"
    return [_plan({**given, "target": w.name, "name": f"{name}-{w.name}"}) for w in known()]


def _suite_name(plans: list[SweepPlan]) -> str:
    return plans[0].name.removesuffix(f"-{plans[0].target.name}")


def _run_all(plans: list[SweepPlan], *, replace: bool) -> list[FinishedSweep]:
    """Run plans in turn; after Ctrl-C the rest is not begun, and what is finished is kept."""
    from sfbench.collect.result_folder import check_free

    for plan in plans:
        check_writable(plan.output)
        check_free(plan.result_dir, replace=replace)
    finished: list[FinishedSweep] = []
    for plan in plans:
        finished.append(_run(plan, replace=replace))
        if finished[-1].result.interrupted:
            break
    return finished


def _run(plan: SweepPlan, *, replace: bool) -> FinishedSweep:
    from rich.console import Console

    from sfbench.cli.progress import TerminalObserver
    from sfbench.plan.machine import this_machine
    from sfbench.run.sweep import run_sweep

    command = shlex.join(["sfbench", *sys.argv[1:]])
    with TerminalObserver(plan, Console(stderr=True)) as observer:
        return run_sweep(plan, this_machine(), observer, command=command, replace=replace)


def _write_report(
    results: list[SweepResult], place: Path, baseline: SweepResult | None = None
) -> None:
    from sfbench.common.files import write_whole
    from sfbench.report.html import render_html

    page = render_html(results, baseline)
    try:
        write_whole(place, page)
    except OSError as error:
        raise UsageError(f"{place}: the report cannot be written: {error.strerror}") from error
    say(f"Report: {place}")


def _print_result(result: SweepResult, *, as_json: bool) -> None:
    if as_json:
        from sfbench.collect.result import to_json

        sys.stdout.write(to_json(result))
        return
    from sfbench.report.table import render_table

    sys.stdout.write(render_table(result, *terminal()))


def _print_suite(results: list[SweepResult]) -> None:
    """One JSON document: the results of a suite in order."""
    from sfbench.collect.result import to_json

    parts = ",\n".join(to_json(result).rstrip() for result in results)
    sys.stdout.write(f'{{"schema": 1, "suite": [\n{parts}\n]}}\n')


def _exit_code(finished: FinishedSweep) -> int:
    """0 good; 5 where a point failed (4 where none could be measured and no script is to blame).

    2 where all is well but the result could not be written.
    """
    result = finished.result
    if result.interrupted:
        return InterruptedSweep.exit_code
    failed = [point for point in result.points if point.status != "ok"]
    if not failed:
        return 0 if finished.stored is not None else UsageError.exit_code
    for point in failed:
        say(f"sfbench: {point.error}")
    if len(failed) == len(result.points) and not any(p.script_fault for p in failed):
        return 4
    return 5


if __name__ == "__main__":
    main()
