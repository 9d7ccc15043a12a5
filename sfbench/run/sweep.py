"""Runs a sweep from plan to result: the one place where all stages meet."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from sfbench.analyze.points import analyze
from sfbench.analyze.rates import log_rate
from sfbench.checks import run_checks
from sfbench.checks.facts import sweep_facts
from sfbench.collect.environment import environment, schedule, script_state, script_warnings
from sfbench.collect.frames import read_launch, step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.collect.result_folder import ResultFolder
from sfbench.common.errors import InterruptedSweep, ResultError
from sfbench.common.plain_text import shareable_values
from sfbench.common.schema import CodeRoot, ProbeOptions, RankJob, Rung, SweepResult
from sfbench.diagnose.causes import diagnose
from sfbench.guard.scratch import scratch
from sfbench.launch.outcome import NODE_LOST, LaunchError, LaunchOutcome
from sfbench.plan.machine import Machine
from sfbench.plan.rounds import Launched, next_launch
from sfbench.plan.sweep_plan import LaunchPlan, NodeJob, SweepPlan
from sfbench.protocol.records import LONE_CYCLES
from sfbench.run.nodes import running
from sfbench.run.observer import Observer
from sfbench.run.preflight import check_before

LEAST_LAUNCHES = 2
"""Of a device count in a sweep whose time is over."""
_BARE: tuple[Rung, ...] = ("train",)
"""Rungs with which the script runs as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSweep:
    """A sweep, written where that was possible."""

    result: SweepResult
    stored: Path | None
    """Its folder."""
    unwritten: str | None = None
    """Why there is none."""

    @property
    def folder(self) -> Path:
        """The result folder.

        Raises:
            ResultError: it could not be written.
        """
        if self.stored is None:
            raise ResultError(str(self.unwritten))
        return self.stored


def run_sweep(
    plan: SweepPlan,
    machine: Machine,
    observer: Observer,
    *,
    command: str,
    replace: bool = False,
    until_s: float = math.inf,
) -> FinishedSweep:
    """Measure, analyze and write a sweep.

    After Ctrl-C what was finished is written, with ``interrupted`` set. No launch begins after
    ``until_s``, by the monotonic clock, if each device count has some.

    Raises:
        UsageError: the result's name is taken, or the machine lacks room.
        ScriptError: the script cannot be compiled.
        InterruptedSweep: interrupted before any launch had ended.
    """
    check_before(plan)
    began = time.monotonic()
    started_at = datetime.now(timezone.utc)
    script = script_state(plan.target.script)
    with ResultFolder(plan.result_dir, replace=replace) as folder:
        run = _launch_all(plan, machine, folder.logs_dir, observer, until_s)
        launches = run.launches
        if not launches:
            raise InterruptedSweep("interrupted before anything was measured: nothing is kept")
        frame = step_frame(launches)
        analysis = analyze(plan, machine, launches, frame)
        result = SweepResult(
            name=plan.name,
            target=plan.target.typed,
            script_args=plan.target.args,
            device_type=plan.device_type,
            emulated=analysis.emulated,
            scaling="strong" if analysis.strong_by_script else plan.scaling,
            scaling_by_script=analysis.strong_by_script,
            interrupted=run.interrupted,
            one_pass=plan.one_pass,
            points=analysis.points,
            diagnoses=diagnose(analysis.points, launches, analysis.steps, machine),
            checks=run_checks(sweep_facts(launches, analysis.points), plan.scaling),
            warnings=(
                *plan.notes,
                *run.warnings,
                *analysis.warnings,
                *script_warnings(script, plan.target.script),
            ),
            environment=environment(plan, machine, launches, command, started_at, script),
            schedule=schedule(plan, launches),
            duration_s=time.monotonic() - began,
        )
        result = shareable_values(result)
        try:
            place = folder.commit(result, analysis.steps)
        except OSError as error:
            # The measurement is not to be lost with the disk: it can still be shown.
            why = f"{plan.result_dir}: the result cannot be written: {error.strerror or error}"
            return FinishedSweep(result=result, stored=None, unwritten=why)
    return FinishedSweep(result=result, stored=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """All launches of a sweep, as far as it came."""

    launches: tuple[MeasuredLaunch, ...]
    interrupted: bool
    warnings: tuple[str, ...]


def _launch_all(
    plan: SweepPlan,
    machine: Machine,
    logs_dir: Path,
    observer: Observer,
    until_s: float = math.inf,
) -> _Run:
    """Run every launch in turn, as ``next_launch`` says.

    Where a hook of the tool fails, the launch is made again, and those after it, without the
    rungs: most hooks stand around the script for them only.
    """
    measured: list[MeasuredLaunch] = []
    warnings: list[str] = []
    interrupted = False
    try:  # around the launcher: it tells other nodes why the sweep ends
        with running(plan, machine) as run:
            while launch := next_launch(plan, machine, [_launched(one) for one in measured]):
                if time.monotonic() > until_s and _some_of_each(plan, measured):
                    break
                one = run_launch(plan, launch, logs_dir, observer, run)
                if hook_failed(one.outcome) and plan.rungs != _BARE and plan.nnodes == 1:
                    plan = dataclasses.replace(plan, rungs=_BARE)
                    warnings.append(_told(one))
                    one = run_launch(plan, launch, logs_dir, observer, run)
                measured.append(one)
    except KeyboardInterrupt:
        interrupted = True
    return _Run(launches=tuple(measured), interrupted=interrupted, warnings=tuple(warnings))


def _some_of_each(plan: SweepPlan, measured: Sequence[MeasuredLaunch]) -> bool:
    """Whether what there is gives intervals at every count that gives anything."""
    made = Counter(one.plan.devices for one in measured)
    return all(made[devices] >= LEAST_LAUNCHES for devices in plan.devices)


def hook_failed(outcome: LaunchOutcome) -> bool:
    """Whether the tool's own part in the ranks failed, and not the script."""
    error = outcome.error
    return error is not None and error.kind in {"tool", "exception"} and not error.script_fault


def _told(one: MeasuredLaunch) -> str:
    error = one.outcome.error
    assert error is not None
    return (
        f"{error.message} (log: {error.log}) From there on launches were made without the "
        "counterfactual rungs: rates and efficiency are measured, the parts of the step are not."
    )


def _launched(one: MeasuredLaunch) -> Launched:
    """What a launch tells about those that follow."""
    record, wall_s = one.record, one.outcome.wall_s
    if record is not None and one.plan.index == 0:
        # The first launch of a sweep also waits for the host of all of them: no other will.
        wall_s = min(wall_s, record.setup_s + record.warmup_s + record.measured_s)
    return Launched(
        devices=one.plan.devices,
        round=one.plan.round,
        ok=one.outcome.status == "ok",
        measured_s=record.measured_s if record is not None else 0.0,
        wall_s=wall_s,
        last=one.outcome.error is not None and one.outcome.error.kind == NODE_LOST,
        log_rate=log_rate(one.steps) if one.steps is not None else None,
    )


def run_launch(
    plan: SweepPlan,
    launch: LaunchPlan,
    logs_dir: Path,
    observer: Observer,
    run: Callable[..., LaunchOutcome],
    *,
    code: CodeRoot | None = None,
) -> MeasuredLaunch:
    """Run one launch and read what it left; ``code``: the checkout that it has to run."""
    observer.launch_started(launch)
    with scratch("launch") as launch_dir:
        refused = _indivisible(plan, launch)
        node_job = _node_job(plan, launch, launch_dir, logs_dir / launch.log_name, code)
        outcome = refused or run(node_job, observer.progressed)
        observer.launch_ended(launch, outcome)
        return read_launch(launch, outcome, launch_dir)


def _node_job(
    plan: SweepPlan, launch: LaunchPlan, launch_dir: Path, log_dir: Path, code: CodeRoot | None
) -> NodeJob:
    log_dir.mkdir(parents=True, exist_ok=True)
    return NodeJob(
        job=RankJob(
            script=str(plan.target.script),
            module=plan.target.module,
            args=plan.target.args,
            launch_dir=str(launch_dir),
            threads=plan.threads_per_device,
            cores=launch.cores,
            device_type=plan.device_type,
            code=code,
            probe=ProbeOptions(
                rungs=plan.rungs,
                warmup_steps=plan.warmup_steps,
                seconds=launch.seconds,
                precision=plan.precision,
                one_pass=plan.one_pass,
                global_batch=plan.global_batch,
                allow_saves=plan.allow_saves,
                seed=launch.seed,
                cycles=launch.cycles or LONE_CYCLES,
                changes=launch.changes,
            ),
        ),
        nproc=plan.spread(launch.devices)[0],
        log_dir=log_dir,
        timeout_s=plan.timeout_s,
        nnodes=len(plan.spread(launch.devices)),
        rdzv_endpoint=plan.rdzv_endpoint,
        run_id=f"{plan.name}-{launch.index}",
        spread=plan.spread(launch.devices),
    )


def _indivisible(plan: SweepPlan, launch: LaunchPlan) -> LaunchOutcome | None:
    """A global batch that the devices do not divide fails its point before anything starts."""
    if plan.global_batch is None or plan.global_batch % launch.devices == 0:
        return None
    message = (
        f"{launch.devices} devices: --global-batch {plan.global_batch} is not divisible by "
        f"{launch.devices}. Choose a multiple of every device count."
    )
    error = LaunchError(
        kind="global-batch", rank=None, message=message, last_lines=(), log=None, script_fault=False
    )
    return LaunchOutcome(
        status="failed", record=None, error=error, notes=(), start_s=time.monotonic(), wall_s=0.0
    )
