"""Runs a tune from options to report: diagnosis, rounds of trials, confirmation."""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common import units
from sfbench.common.errors import InterruptedSweep, MeasureError, ResultError, ScriptError
from sfbench.common.plain_text import plain_values
from sfbench.common.schema import LADDER, Point, SweepResult
from sfbench.common.units import things
from sfbench.guard.scratch import is_kept, keep, new_scratch
from sfbench.launch.local import LocalLauncher
from sfbench.plan.machine import Machine
from sfbench.plan.options import TuneSettings
from sfbench.plan.request import planned
from sfbench.plan.sweep_plan import SweepPlan
from sfbench.run.sweep import FinishedSweep, run_sweep
from sfbench.tuning.best_set import winners
from sfbench.tuning.board import LOOKS, Board
from sfbench.tuning.candidates import candidates, fitting
from sfbench.tuning.confirmation import CONFIRM_ROUNDS, Confirmed, confirm
from sfbench.tuning.gain_words import brief
from sfbench.tuning.job_facts import JobFacts, job_facts
from sfbench.tuning.launch_watch import OutOfTime
from sfbench.tuning.limits import limits
from sfbench.tuning.trial_launches import SEED, TrialLaunches, Trials
from sfbench.tuning.tried import Candidate
from sfbench.tuning.tune_observer import TuneObserver
from sfbench.tuning.tune_report import TuneReport
from sfbench.tuning.verdict import Story, reported

SWEEP_ROUNDS = 4
"""Launches of each device count in the diagnosis."""
LEAST_SWEEP_S, MOST_SWEEP_S = 5.0, 13.0
SWEEP_PART = 1 / 50
"""Of the budget, measured for the diagnosis at each device count."""
DIAGNOSIS_PART = 0.4
"""Of the budget: after it the diagnosis begins no further launch."""
PER_CANDIDATE = 4.5
"""Launches that a candidate takes until the first look, as some are dropped before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneJob:
    """What is tuned, and how."""

    plan: SweepPlan
    """At 1 device and as many as are tuned for."""
    machine: Machine
    devices: int
    asked: TuneSettings
    command: str


def tune_job(
    given: dict[str, Any],
    script_args: tuple[str, ...],
    asked: TuneSettings,
    *,
    command: str,
    result: SweepResult | None = None,
) -> TuneJob:
    """The job of options as for a sweep (None: not given), at the largest count.

    Without a count: the largest that ``result`` has figures of; without a result the largest of
    the settings that the machine has devices for. Threads are those of ``result``.

    Raises:
        UsageError: an option, a setting or the target is wrong.
    """
    if result is not None:
        given = _as_measured(given, result)
    first = planned(given, script_args)
    devices = max(first.plan.devices)
    if given.get("devices") is None:
        there = first.machine.usable_cores
        there = there if first.plan.device_type == "cpu" else len(first.machine.gpus)
        fitting_counts = [count for count in first.plan.devices if count <= there]
        devices = max(fitting_counts, default=min(first.plan.devices))
    counts = sorted({1, devices})
    request = planned({**given, "devices": counts}, script_args)
    return TuneJob(
        plan=request.plan,
        machine=request.machine,
        devices=devices,
        asked=asked,
        command=command,
    )


def _as_measured(given: dict[str, Any], result: SweepResult) -> dict[str, Any]:
    measured = [point.devices for point in result.points if point.status == "ok"]
    known = {
        "devices": [max(measured)] if measured else None,
        "threads_per_device": result.environment.threads_per_device,
    }
    return {**given, **{key: value for key, value in known.items() if given.get(key) is None}}


def diagnosis_plan(job: TuneJob) -> SweepPlan:
    """The sweep that the candidates follow from."""
    seconds = min(MOST_SWEEP_S, max(LEAST_SWEEP_S, SWEEP_PART * job.asked.budget))
    return replace(job.plan, rounds=SWEEP_ROUNDS, seconds=seconds, rungs=LADDER)


def diagnosed(job: TuneJob, observer: TuneObserver, began_s: float) -> FinishedSweep:
    """Run that sweep, in its part of the budget; ``began_s``: when the budget began.

    Raises:
        ScriptError, MeasureError: there is no figure at the count that is tuned for.
        InterruptedSweep: nothing was tried yet; the sweep's result says how far it came.
    """
    until_s = began_s + DIAGNOSIS_PART * job.asked.budget
    finished = run_sweep(
        diagnosis_plan(job), job.machine, observer, command=job.command, until_s=until_s
    )
    if finished.result.interrupted:
        raise InterruptedSweep("interrupted before anything was tried")
    tuned_point(finished.result, job.devices)
    return finished


def tuned_point(result: SweepResult, devices: int) -> Point:
    """The point of a result that is tuned for.

    Raises:
        ResultError: there is none.
        ScriptError, MeasureError: it failed.
    """
    point = next((p for p in result.points if p.devices == devices), None)
    if point is None:
        counts = ", ".join(str(p.devices) for p in result.points) or "none"
        raise ResultError(
            f"{result.name}: no point at {things(devices, 'device')} (it has {counts})"
        )
    if point.status != "ok" or point.step_s is None:
        message = point.error or f"no step was measured at {things(devices, 'device')}"
        raise ScriptError(message) if point.script_fault else MeasureError(message)
    return point


def run_tune(
    job: TuneJob,
    result: SweepResult,
    observer: TuneObserver,
    *,
    stored: Path | None,
    began_s: float,
) -> TuneReport:
    """Try what follows from a result. ``began_s``: when the budget began.

    Raises:
        ScriptError, MeasureError: the job as it is gave nothing.
        InterruptedSweep: interrupted before the first launch had ended.
    """
    with _opened(job, observer, job.asked.budget + began_s) as (trials, launches):
        tuning = Tuning(job, launches, observer, job.asked.budget + began_s)
        story = tuning.run(result)
        if any(column.standing == "failed" for column in story.board.columns):
            keep(trials.logs)
            story = replace(story, logs=str(trials.logs))
    report = reported(story, job.plan.target, result=None if stored is None else str(stored))
    return plain_values(
        replace(report, budget_s=job.asked.budget, duration_s=time.monotonic() - began_s)
    )


def usual_launch_s(result: SweepResult, devices: int, seconds: float) -> float:
    """What a launch that measures for ``seconds`` takes, from those of the diagnosis.

    The median: the first launch of a command imports torch.
    """
    point = next(point for point in result.points if point.devices == devices)
    starts = [one.wall_s - one.measured_s for one in point.launches if one.status == "ok"]
    return seconds + statistics.median(starts)


class Tuning:
    """One tune under way."""

    def __init__(
        self, job: TuneJob, launches: TrialLaunches, observer: TuneObserver, until_s: float
    ) -> None:
        self._job = job
        self._launches = launches
        self._observer = observer
        self._until_s = until_s
        self._random = random.Random(SEED)
        self._rates: list[float] = []
        self._launch_s: list[float] = []

    def run(self, result: SweepResult) -> Story:
        """Try what follows from a result; after Ctrl-C what there is."""
        look = self._look()
        facts = self._facts(result, look)
        allowed = self._allowed()
        found = candidates(facts, allowed)
        notes = limits(facts, found, allowed)
        for note in notes:
            self._observer.told(note)
        usual_s = usual_launch_s(result, self._job.devices, self._job.asked.seconds)
        self._launch_s, self._launches.usual_s = [usual_s], usual_s
        every = fitting(found, self._room(usual_s))
        tried = tuple(one for one in every if not one.unfit)
        board = Board([one.settings.loads_only for one in tried])
        interrupted = False
        confirmed: Confirmed | None = None
        try:
            self._rounds(board, tried)
            chosen = winners(tried, board)
            if chosen:
                confirmed = confirm(self._launches, chosen, self._random, self._has_time)
        except KeyboardInterrupt:
            interrupted = True
        return Story(
            result=result,
            facts=facts,
            every=every,
            tried=tried,
            board=board,
            notes=notes,
            confirmed=confirmed,
            interrupted=interrupted,
            samples_per_s=statistics.median(self._rates) if self._rates else None,
        )

    def _look(self) -> MeasuredLaunch:
        try:
            return self._launches.look()
        except OutOfTime:
            raise MeasureError(
                f"The budget of {units.duration(self._job.asked.budget)} ended before anything was "
                "tried. Give more --budget, or a diagnosis that is there: --from RESULT."
            ) from None

    def _facts(self, result: SweepResult, look: MeasuredLaunch) -> JobFacts:
        facts = job_facts(
            result,
            self._job.devices,
            look,
            cores=self._job.machine.usable_cores,
            threads=self._job.plan.threads_per_device,
        )
        self._launches.loader_lines = facts.loader_lines
        return facts

    def _allowed(self) -> tuple[str, ...]:
        """Under a global batch that was asked for no other can be tried."""
        fixed = self._job.plan.global_batch is not None
        return tuple(one for one in self._job.asked.allow if not (fixed and one == "batch"))

    def _room(self, launch_s: float) -> int:
        """Candidates that the budget lasts for; one is always tried."""
        launches = self._left_s() / launch_s - 2 * CONFIRM_ROUNDS - LOOKS[0]
        return max(1, int(launches / PER_CANDIDATE))

    def _rounds(self, board: Board, tried: Sequence[Candidate]) -> None:
        for round_ in range(LOOKS[-1]):
            if not board.running:
                return
            if round_ and self._left_s() < self._round_s(board) + self._confirm_s():
                break
            try:
                self._round(board, tried, round_)
            except OutOfTime:
                break
        board.end()

    def _round(self, board: Board, tried: Sequence[Candidate], round_: int) -> None:
        """The job as it is and all that go on, in random order."""
        base, values = None, {}
        places = [-1, *board.running]
        for place in self._random.sample(places, len(places)):
            if not self._has_time(1):
                raise OutOfTime
            began_s = time.monotonic()
            if place < 0:
                base = self._launches.base(round_)
                self._rates.append(base.samples_per_s)
            else:
                value = self._launches.trial(tried[place].settings, round_)
                board.took(place, self._launches.taken_bytes)
                if isinstance(value, str):
                    board.fail(place, value)
                    self._observer.told(f"{tried[place].name}: failed: {brief(value)}")
                    continue
                values[place] = value
            self._launch_s.append(time.monotonic() - began_s)
        assert base is not None
        board.add(base, values)

    def _left_s(self) -> float:
        return self._until_s - time.monotonic()

    def _has_time(self, launches: int) -> bool:
        return self._left_s() > launches * statistics.median(self._launch_s)

    def _round_s(self, board: Board) -> float:
        return (1 + len(board.running)) * statistics.median(self._launch_s)

    def _confirm_s(self) -> float:
        return 2 * CONFIRM_ROUNDS * statistics.median(self._launch_s)


@contextmanager
def _opened(
    job: TuneJob, observer: TuneObserver, until_s: float
) -> Iterator[tuple[Trials, TrialLaunches]]:
    """A launcher for all trials; logs are kept only if a launch failed."""
    logs = new_scratch("logs")
    plan = job.plan
    try:
        with LocalLauncher(
            threads=plan.threads_per_device, device_type=plan.device_type
        ) as launcher:
            trials = Trials(
                plan=plan,
                machine=job.machine,
                devices=job.devices,
                seconds=job.asked.seconds,
                launcher=launcher,
                until_s=until_s,
                logs=logs,
                observer=observer,
            )
            yield trials, TrialLaunches(trials)
    except (ScriptError, MeasureError):
        if any(logs.iterdir()):
            keep(logs)
        raise
    finally:
        if not is_kept(logs):
            shutil.rmtree(logs)
