"""Launches a job with other settings, and turns each end into a value or a reason."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass, replace
from pathlib import Path

from sfbench.analyze.measured import measure_point
from sfbench.analyze.steps import job_steps
from sfbench.analyze.warmup import label_warmup
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.errors import InterruptedSweep, MeasureError, ScriptError, Unsteady
from sfbench.common.schema import Rung
from sfbench.common.units import duration
from sfbench.launch.local import LocalLauncher
from sfbench.launch.outcome import LaunchError
from sfbench.plan.machine import Machine
from sfbench.plan.planner import pinning
from sfbench.plan.sweep_plan import LaunchPlan, SweepPlan
from sfbench.run.sweep import run_launch
from sfbench.tuning.board import LaunchValue
from sfbench.tuning.launch_watch import LaunchWatch, OutOfTime, TooMuchMemory, TrialTooLong
from sfbench.tuning.tried import TriedSettings
from sfbench.tuning.tune_observer import AS_IT_IS, TuneObserver

RUNGS: tuple[Rung, ...] = ("train", "cached")
SEED = 20_261
SECOND_TRIES = 2
"""How often a launch without a steady state is made again."""
LONGER = 6.0
"""A trial's launch may take so many times as long as one of the job as it is ..."""
LEAST_LONGER = 2.0
"""... where the budget is nearly over ..."""
LEAST_S = 60.0
"""... and this at least; without progress a trial hangs after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """What all launches of one command share."""

    plan: SweepPlan
    machine: Machine
    devices: int
    seconds: float
    """Measuring budget of one launch."""
    launcher: LocalLauncher
    until_s: float
    """When the budget ends, by the monotonic clock."""
    logs: Path
    observer: TuneObserver


class TrialLaunches:
    """Makes the launches. ``loader_lines`` are known once the first has ended."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._made = 0
        self.loader_lines: tuple[str, ...] = ()
        self.usual_s: float | None = None
        """Wall time of a launch of the job as it is; None: not known yet."""
        self.taken_bytes: int | None = None
        """Memory of this machine that the last trial took."""

    def look(self) -> MeasuredLaunch:
        """The first launch of the job as it is, from which no figure is taken.

        Raises:
            ScriptError, MeasureError: it gave nothing.
            OutOfTime: the budget is over.
        """
        launched = self._launch(None, 0)
        if launched.record is None:
            raise _broken(launched, self._trials.logs)
        return launched

    def base(self, round_: int) -> LaunchValue:
        """The job as it is.

        Raises:
            ScriptError, MeasureError: it gave nothing.
            OutOfTime: the budget is over.
        """
        for left in reversed(range(SECOND_TRIES + 1)):
            launched = self._launch(None, round_)
            if launched.record is None:
                raise _broken(launched, self._trials.logs)
            self.usual_s = launched.outcome.wall_s
            try:
                return launch_value(launched)
            except Unsteady:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def trial(self, settings: TriedSettings, round_: int) -> LaunchValue | str:
        """A value, or why there is none."""
        why = ""
        for _ in range(SECOND_TRIES):
            began_s = time.monotonic()
            try:
                launched = self._launch(settings, round_)
                if launched.record is not None:
                    return launch_value(launched)
                return _reason(launched)
            except TrialTooLong:
                return f"a launch took more than {duration(time.monotonic() - began_s)}"
            except TooMuchMemory as error:
                return str(error)
            except (Unsteady, MeasureError) as error:
                why = str(error)
        return why

    def _limit_s(self) -> float:
        """How long a trial may take: no longer than the budget lasts, but time to show itself."""
        usual_s = self.usual_s or self._trials.plan.timeout_s
        return min(max(LEAST_S, LONGER * usual_s), max(LEAST_LONGER * usual_s, self._left_s()))

    def _left_s(self) -> float:
        return self._trials.until_s - time.monotonic()

    def _launch(self, settings: TriedSettings | None, round_: int) -> MeasuredLaunch:
        trials, plan = self._trials, replace(self._trials.plan, rungs=RUNGS, one_pass=True)
        changes = None
        if settings is not None:
            changes = settings.changes(self.loader_lines)
            hangs_s = min(plan.timeout_s, self._limit_s())
            threads = settings.threads or plan.threads_per_device
            plan = replace(plan, timeout_s=hangs_s, threads_per_device=threads)
        launch = LaunchPlan(
            index=self._made,
            round=round_,
            devices=trials.devices,
            cores=pinning(replace(plan, devices=(trials.devices,)), trials.devices, trials.machine),
            seconds=trials.seconds,
            # All launches of a round visit the rungs in the same order.
            seed=SEED + round_,
            changes=changes,
        )
        self._made += 1
        trials.observer.trial_started(str(settings) if settings else AS_IT_IS, round_)
        logs = trials.logs / f"launch{launch.index}"
        trial = settings is not None
        until_s = time.monotonic() + (self._limit_s() if trial else self._left_s())
        late = TrialTooLong if trial else OutOfTime
        watch = LaunchWatch(trials.observer, until_s, late, trial=trial)
        run = functools.partial(trials.launcher.run, while_waiting=watch.check)
        try:
            return run_launch(plan, launch, logs, watch, run)
        finally:
            self.taken_bytes = watch.taken_bytes


def launch_value(measured: MeasuredLaunch) -> LaunchValue:
    """Samples over time of a launch that was ok: what comes once per epoch counts as it came.

    Raises:
        Unsteady: no steady state.
        MeasureError: no train step.
    """
    frame = step_frame([measured])
    labelled = label_warmup(frame, job_steps(frame))
    if labelled.unsteady:
        raise Unsteady("a launch never came to a steady state: free the machine of other work")
    point = measure_point([measured], labelled.steps, labelled.job, ladder=True)
    if point is None:
        raise MeasureError("no train step was measured: give each launch more --seconds")
    cached = point.cached.samples_per_s if point.cached is not None else None
    return LaunchValue(samples_per_s=point.rate.samples_per_s, cached_samples_per_s=cached)


def _reason(launched: MeasuredLaunch) -> str:
    error = launched.outcome.error
    if error is None:
        return launched.outcome.status
    if error.kind == "interrupted":
        raise KeyboardInterrupt
    return error.message


def _broken(launched: MeasuredLaunch, logs: Path) -> ScriptError | MeasureError | InterruptedSweep:
    error = launched.outcome.error
    if error is None:
        return MeasureError(f"The job as it is: {launched.outcome.status}")
    if error.kind == "interrupted":
        return InterruptedSweep(error.message)
    text = f"{error.message}{_last(error)}\nThe ranks' logs: {logs}"
    return ScriptError(text) if error.script_fault else MeasureError(text)


def _last(error: LaunchError) -> str:
    lines = [line for line in error.last_lines if not line.startswith("sfbench: ")]
    return "".join(f"\n    {line}" for line in lines)
