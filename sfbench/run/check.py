"""Runs a target's correctness checks: one launch at two devices, in which nothing is measured."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfbench.checks import run_checks
from sfbench.checks.facts import launch_facts
from sfbench.collect.frames import read_launch
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.errors import InterruptedSweep, MeasureError, ScriptError
from sfbench.common.plain_text import plain_values
from sfbench.common.schema import SCHEMA, CheckResult, ProbeOptions, RankJob
from sfbench.guard.scratch import is_kept, keep, new_scratch, scratch
from sfbench.launch.local import LocalLauncher
from sfbench.launch.outcome import LaunchError
from sfbench.plan.machine import Machine
from sfbench.plan.request import Request, planned
from sfbench.plan.rounds import next_launch
from sfbench.plan.sweep_plan import LaunchPlan, NodeJob, SweepPlan
from sfbench.run.observer import Observer
from sfbench.run.preflight import check_before
from sfbench.run.sweep import hook_failed

DEVICES = 2
SECONDS = 3.0
"""Time in the script's loop, once it is known."""
NO_PROGRESS_S = 60.0
"""Without progress for so long the script hangs, where the caller does not say otherwise."""
_MAY_CRASH = ("download-race",)
"""Failed checks that explain a crash whatever its words."""
_CRASHES = ("exception", "exit", "signal", "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A target's correctness checks."""

    target: str
    script_args: tuple[str, ...]
    devices: int
    checks: tuple[CheckResult, ...]
    duration_s: float
    crash: str | None = None
    """How the script failed, where no failed check tells of it."""

    @property
    def failed(self) -> bool:
        """Whether some check failed."""
        return any(check.status == "fail" for check in self.checks)


def check_request(given: Mapping[str, Any], script_args: tuple[str, ...]) -> Request:
    """What to run for the checks of a target: ``device`` and ``timeout`` may be given.

    Raises:
        UsageError: an option, a setting or the target is wrong.
    """
    limit_s = NO_PROGRESS_S if given.get("timeout") is None else given["timeout"]
    own = {"devices": [DEVICES], "timeout": limit_s, "rounds": 1}
    return planned({**given, **own}, script_args)


def run_check(plan: SweepPlan, machine: Machine, observer: Observer) -> Checked:
    """Watch a target at two devices and judge what was seen.

    A crash of the script counts where a check explains it.

    Raises:
        ScriptError: the script cannot be compiled, or crashed and no check says why; its logs
            are kept.
        MeasureError: it never came to train; its logs are kept.
        InterruptedSweep: Ctrl-C.
    """
    check_before(plan)
    began = time.monotonic()
    logs = new_scratch("logs")
    try:
        return plain_values(_checked(plan, _watch(plan, machine, logs, observer), logs, began))
    finally:
        if not is_kept(logs):
            shutil.rmtree(logs)


def _checked(plan: SweepPlan, measured: MeasuredLaunch, logs: Path, began: float) -> Checked:
    checked = Checked(
        target=plan.target.typed,
        script_args=plan.target.args,
        devices=DEVICES,
        checks=run_checks([launch_facts(measured)], plan.scaling),
        duration_s=time.monotonic() - began,
    )
    error = measured.outcome.error
    if error is None or _explained(checked, error):
        return checked
    keep(logs)
    if not checked.failed or error.kind == "interrupted":
        raise _error(error, logs)
    return dataclasses.replace(checked, crash=str(_error(error, logs)))


def _explained(checked: Checked, error: LaunchError) -> bool:
    """Whether a failed check tells of this very failure, or of a race that may have led to it."""
    failed = [check for check in checked.checks if check.status == "fail"]
    return any(check.evidence == error.message or check.id in _MAY_CRASH for check in failed)


def to_json(checked: Checked) -> str:
    """One document: schema, target, script_args, devices, checks, duration_s and crash."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(checked)}, indent=2) + "\n"


def _watch(plan: SweepPlan, machine: Machine, logs: Path, observer: Observer) -> MeasuredLaunch:
    launch = next_launch(plan, machine, ())
    assert launch is not None
    with LocalLauncher(threads=plan.threads_per_device, device_type=plan.device_type) as launcher:
        measured = _launch(launcher, plan, launch, logs, observer, may_shorten=True)
        if _may_be_ours(measured):
            # A loop that counts on the length of its loader may not bear to be ended early.
            measured = _launch(launcher, plan, launch, logs, observer, may_shorten=False)
    return measured


def _may_be_ours(measured: MeasuredLaunch) -> bool:
    error = measured.outcome.error
    shortened = any(
        epoch.shortened
        for rank in measured.evidence
        for loader in rank.loaders
        for epoch in loader.epochs
    )
    if error is None:
        return False
    return hook_failed(measured.outcome) or (error.kind in _CRASHES and shortened)


def _launch(
    launcher: LocalLauncher,
    plan: SweepPlan,
    launch: LaunchPlan,
    logs: Path,
    observer: Observer,
    *,
    may_shorten: bool,
) -> MeasuredLaunch:
    observer.launch_started(launch)
    with scratch("launch") as launch_dir:
        job = RankJob(
            script=str(plan.target.script),
            module=plan.target.module,
            args=plan.target.args,
            launch_dir=str(launch_dir),
            threads=plan.threads_per_device,
            cores=launch.cores,
            device_type=plan.device_type,
            probe=ProbeOptions(
                checks=True,
                may_shorten=may_shorten,
                seconds=SECONDS,
                allow_saves=plan.allow_saves,
            ),
        )
        node_job = NodeJob(
            job=job,
            nproc=DEVICES,
            log_dir=logs / launch.log_name,
            timeout_s=plan.timeout_s,
            run_id=f"{plan.name}-check",
        )
        outcome = launcher.run(node_job, observer.progressed)
        observer.launch_ended(launch, outcome)
        return read_launch(launch, outcome, launch_dir)


def _error(error: LaunchError, logs: Path) -> ScriptError | MeasureError | InterruptedSweep:
    if error.kind == "interrupted":
        return InterruptedSweep(error.message)
    last = "".join(f"\n    {line}" for line in error.last_lines)
    text = f"{error.message}{last}\nThe ranks' logs: {logs}"
    return ScriptError(text) if error.script_fault else MeasureError(text)
