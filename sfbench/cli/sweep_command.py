"""``sfbench sweep``."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfbench.cli.console import news, put_json, put_text, say
from sfbench.cli.parameters import SWEEP_OPTIONS, Given, Group, Json, Quiet, takes
from sfbench.cli.results import print_result, sweep_exit_code, write_report
from sfbench.cli.slurm_command import Files, Wishes, run_slurm, slurm_job, slurm_of
from sfbench.common import units
from sfbench.common.errors import UsageError
from sfbench.common.files import check_writable
from sfbench.common.units import things
from sfbench.plan.options import Settings
from sfbench.plan.slurm_options import SlurmSettings

if TYPE_CHECKING:
    from sfbench.common.schema import SweepResult
    from sfbench.plan.sweep_plan import SweepPlan
    from sfbench.run.sweep import FinishedSweep


@takes(
    Group(model=Settings, names=SWEEP_OPTIONS),
    Group(model=SlurmSettings, names=tuple(SlurmSettings.model_fields)),
    target=False,
)
def sweep(  # noqa: PLR0913 - each parameter is an option
    given: Given,
    *,
    report: Annotated[
        Path | None,
        typer.Option(help="where the HTML report goes [reports/NAME.html]", metavar="PATH"),
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="write no HTML report")] = False,
    as_json: Json = False,
    force: Annotated[
        bool, typer.Option("--force", help="replace a result of the same name")
    ] = False,
    suite: Annotated[
        bool,
        typer.Option(
            "--suite",
            help="every reference workload in turn, one report with a part for each; takes no "
            "TARGET. Results are named NAME-WORKLOAD; `--json` prints "
            '`{"schema": 1, "suite": [...]}`',
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="print what would run and for how long, and run nothing"),
    ] = False,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            help="with --launcher slurm: submit the job and end; sfbench collect shows its result",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Measure how a training script scales: script arguments go behind `--`."""
    slurm = slurm_of(given, no_wait=no_wait, suite=suite)
    if slurm is not None:
        files = Files(report=report, no_report=no_report, force=force)
        job = slurm_job(given, slurm, files)
        run_slurm(job, Wishes(dry_run=dry_run, no_wait=no_wait, as_json=as_json, quiet=quiet))
        return
    plans = _suite_plans(given, quiet=quiet) if suite else [_plan(given, quiet=quiet)]
    if dry_run:
        _print_plans(plans, as_json=as_json)
        return
    if plans[0].node_rank:
        _follow(plans, quiet=quiet)
        return
    if report is not None and not no_report:
        check_writable(report.parent)
    finished = _run_all(plans, replace=force, quiet=quiet)
    if suite and as_json:
        _print_suite([f.result for f in finished])
    else:
        for one in finished:
            print_result(one.result, as_json=as_json)
    # The table comes first: should the report fail, nothing that was measured is lost.
    if not no_report:
        first = finished[0].stored or plans[0].result_dir
        title = first.name if len(plans) == 1 else _suite_name(plans)
        place = report or Path("reports") / f"{title}.html"
        write_report([f.result for f in finished], place)
        news(f"Report: {place}", quiet=quiet)
    for one in finished:
        if one.stored is None:
            say(f"sfbench: {one.unwritten}")
        else:
            news(_where(one.stored, one.result), quiet=quiet)
    sys.exit(max(sweep_exit_code(one.result, one.stored) for one in finished))


def _where(stored: Path, result: SweepResult) -> str:
    if stored.name == result.name:
        return f"Result: {stored}"
    return f"Result: {stored} (the {result.name} that is there stays)"


def _print_plans(plans: list[SweepPlan], *, as_json: bool) -> None:
    documents = [_described(plan) for plan in plans]
    if as_json:
        put_json(json.dumps({"schema": 1, "plans": documents}, indent=2) + "\n")
        return
    for plan, document in zip(plans, documents, strict=True):
        counts = units.counts(plan.devices, f"{plan.device_type} device")
        about = "about " if plan.rounds is None else ""
        put_text(
            f"{_typed(plan)}\n"
            f"  {about}{document['launches']} launches: {counts}, "
            f"{things(plan.threads_per_device, 'thread')} each, {document['rounds']} rounds\n"
            f"{_on_nodes(plan)}"
            f"  takes about {units.duration(document['expected_s'])}: measures for at most "
            f"{document['measuring_s']:g} s; each launch also starts, warms up and ends\n"
            f"  result: {plan.result_dir}\n"
        )


def _on_nodes(plan: SweepPlan) -> str:
    """Which devices are on which node."""
    if plan.nnodes == 1:
        return ""
    spread = "; ".join(f"{n}: {' + '.join(map(str, plan.spread(n)))}" for n in plan.devices)
    return (
        f"  on {things(plan.nnodes, 'node')} that meet at {plan.rdzv_endpoint}, this is node "
        f"{plan.node_rank}; devices by node: {spread}\n"
    )


def _typed(plan: SweepPlan) -> str:
    script = str(plan.target.script)
    words = ["-m", plan.target.module] if plan.target.module else [script]
    return shlex.join([*words, *plan.target.args])


def _described(plan: SweepPlan) -> dict[str, Any]:
    from sfbench.plan.rounds import expected_launches, expected_s

    return {
        "script": str(plan.target.script),
        "script_args": list(plan.target.args),
        "devices": list(plan.devices),
        "device_type": plan.device_type,
        "threads_per_device": plan.threads_per_device,
        "scaling": plan.scaling,
        "rounds": plan.rounds or "auto",
        "rungs": list(plan.rungs),
        "nnodes": plan.nnodes,
        "node_rank": plan.node_rank,
        "rdzv_endpoint": plan.rdzv_endpoint,
        "launches": expected_launches(plan),
        "measuring_s": plan.seconds * len(plan.devices),
        "expected_s": expected_s(plan),
        "result": str(plan.result_dir),
    }


def _plan(given: Given, *, quiet: bool = False, **changed: Any) -> SweepPlan:
    from sfbench.plan.request import planned

    request = planned({**given.options, **changed}, given.script_args, nodes=True)
    for note in request.notes:
        news(f"sfbench: {note}", quiet=quiet)
    return request.plan


def _follow(plans: list[SweepPlan], *, quiet: bool) -> None:
    """On a node that is not the first: the result and the report are the first one's."""
    from sfbench.plan.machine import this_machine
    from sfbench.run.nodes import follow

    for plan in plans:
        follow(plan, this_machine(), lambda text: news(text, quiet=quiet))


def _suite_plans(given: Given, *, quiet: bool) -> list[SweepPlan]:
    """One plan for each reference workload; their results are named after it."""
    from sfbench.plan.targets import workloads as known

    if given.options["target"] is not None or given.script_args:
        raise UsageError("--suite runs every reference workload: it takes no TARGET and no `--`.")
    # What is to be said of this machine is said once, not for each workload.
    if _plan(given, quiet=quiet, target=known()[0].name).nnodes > 1:
        raise UsageError("--suite runs on one node: sweep each workload by its name over several.")
    name = given.options["name"] or f"suite-{datetime.now():%Y%m%d-%H%M%S}"
    return [_plan(given, quiet=True, target=w.name, name=f"{name}-{w.name}") for w in known()]


def _suite_name(plans: list[SweepPlan]) -> str:
    return plans[0].name.removesuffix(f"-{plans[0].target.name}")


def _run_all(plans: list[SweepPlan], *, replace: bool, quiet: bool) -> list[FinishedSweep]:
    """Run plans in turn; after Ctrl-C the rest is not begun, and what is finished is kept."""
    from sfbench.collect.result_folder import check_free

    for plan in plans:
        check_writable(plan.output)
        check_free(plan.result_dir, replace=replace)
    finished: list[FinishedSweep] = []
    news(_announced(plans), quiet=quiet)
    for plan in plans:
        finished.append(_run(plan, replace=replace, quiet=quiet))
        if finished[-1].result.interrupted:
            break
    return finished


def _announced(plans: list[SweepPlan]) -> str:
    from sfbench.plan.rounds import expected_s

    counts = units.counts(plans[0].devices, "device")
    whole_s = sum(map(expected_s, plans))
    return (
        f"{units.listed([plan.target.name for plan in plans])} at {counts}: takes about "
        f"{units.duration(whole_s)}, half of it to measure, half to start and warm up."
    )


def _run(plan: SweepPlan, *, replace: bool, quiet: bool) -> FinishedSweep:
    from rich.console import Console

    from sfbench.cli.progress import TerminalObserver
    from sfbench.plan.machine import this_machine
    from sfbench.run.sweep import run_sweep

    command = shlex.join(["sfbench", *sys.argv[1:]])
    with TerminalObserver(plan, Console(stderr=True, quiet=quiet)) as observer:
        return run_sweep(plan, this_machine(), observer, command=command, replace=replace)


def _print_suite(results: list[SweepResult]) -> None:
    """One JSON document: the results of a suite in order."""
    from sfbench.collect.result import to_json

    parts = ",\n".join(to_json(result).rstrip() for result in results)
    put_json(f'{{"schema": 1, "suite": [\n{parts}\n]}}\n')
