"""Runs a gate from options to report; records what one can compare with; calibrates."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import repeat
from pathlib import Path
from typing import Any

from sfbench.collect.environment import environment
from sfbench.common.errors import MeasureError, ResultError, ScriptError, UsageError
from sfbench.common.schema import LADDER, Environment, SweepResult
from sfbench.gating import calibration_files
from sfbench.gating.checkouts.arms import Arms, checked_out, swapped
from sfbench.gating.checkouts.git import changed_paths, commit_of, contains, listed, root_of
from sfbench.gating.checkouts.paths import idle, rooted, touched
from sfbench.gating.conclusion import SidesParts, Subject, compared_report, unmeasured_report
from sfbench.gating.fingerprint import Fingerprint, differences, fingerprint, of_result
from sfbench.gating.gate_observer import GateObserver
from sfbench.gating.gate_report import ArmName, CalibrationNote, GateOptions, GateReport, SlotValue
from sfbench.gating.side_launches import LADDER_PAIRS, GateJob, Sides, in_checkout, opened
from sfbench.gating.sides import Side, side_result
from sfbench.gating.statistics.calibration import Calibration, calibrate
from sfbench.gating.statistics.control import BAND
from sfbench.gating.statistics.judge import AgainstStored, Contrast, Judge, Paired, median
from sfbench.gating.statistics.loop import Compared, Measure, PairLoop
from sfbench.gating.statistics.schedule import pair_orders
from sfbench.gating.stored import Stored, half_widths_of, parts_of, stored_base
from sfbench.plan.options import GateSettings
from sfbench.plan.request import planned
from sfbench.plan.sweep_plan import SweepPlan
from sfbench.run.observer import Observer
from sfbench.run.sweep import FinishedSweep, run_sweep

RECORD_ROUNDS = 8
"""Launches of each device count in a recorded result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOutcome:
    """The report, and both sides as sweep results for the HTML page."""

    report: GateReport
    base: SweepResult | None = None
    candidate: SweepResult | None = None


def gate_job(
    given: dict[str, Any], script_args: tuple[str, ...], asked: GateSettings, *, command: str
) -> GateJob:
    """The job of options as for a sweep (None: not given) and the settings, at the largest count.

    ``asked``: what is special to the gate.

    Raises:
        UsageError: an option, a setting or the target is wrong.
    """
    asked_for = planned(given, script_args)
    plan = asked_for.plan
    devices = max(plan.devices)
    return GateJob(
        plan=replace(plan, devices=(devices,), one_pass=True),
        machine=asked_for.machine,
        options=GateOptions(
            devices=devices,
            margin=asked.margin,
            budget_s=asked.budget,
            seconds=asked.seconds,
            min_efficiency=asked.min_efficiency,
        ),
        command=command,
    )


def gate_commit(
    job: GateJob, base_ref: str, observer: GateObserver, *, paths: tuple[str, ...] = ()
) -> GateOutcome:
    """Compare the working tree with a commit, side by side.

    ``paths``: patterns; if nothing that changed matches, nothing is measured. A side that is
    broken or cannot be measured is told by the verdict.

    Raises:
        UsageError: no such commit, nothing to compare, or a side ran the wrong code.
        ResultError: this machine's calibration is damaged.
    """
    began_s = time.monotonic()
    root = root_of(job.plan.target.script)
    commit = commit_of(root, base_ref)
    subject = _subject(job, base_ref)
    patterns = [rooted(pattern, root, Path.cwd()) for pattern in paths]
    changed = changed_paths(root, commit) if patterns else ()
    if patterns and not touched(changed, patterns):
        reason = f"Nothing that changed since {base_ref} matches {', '.join(paths)}."
        report = unmeasured_report(subject, job.options, "not-touched", reason)
        slips = idle((*changed, *listed(root, "ls-files")), patterns)
        warned = tuple(f"--paths: no file matches {pattern}" for pattern in slips)
        return GateOutcome(report=replace(report, warnings=warned))
    known = calibration_files.load(_calibrated_job(job))
    with checked_out(root, base_ref) as arms:
        subject = replace(
            subject,
            base_commit=arms.base.commit,
            candidate_commit=arms.candidate.commit,
            stale_base=not contains(root, commit),
        )
        outcome = _or_why_not(
            subject, job, lambda: _side_by_side(job, subject, arms, observer, known)
        )
    return _timed(outcome, began_s)


def gate_result(job: GateJob, result: SweepResult, observer: GateObserver) -> GateOutcome:
    """Compare the working tree with a stored result of the same machine.

    Raises:
        ResultError: the result holds nothing to compare with.
        UsageError: it was made on another machine or of another job: each difference is named.
    """
    began_s = time.monotonic()
    stored = stored_base(result, job.options.devices)
    if job.options.min_efficiency is not None and stored.solo_samples_per_s is None:
        raise ResultError(f"{result.name}: it holds no one-device rate for --min-efficiency.")
    here = _environment(job)
    wanted = of_result(result, job.options.devices)
    # Rates are compared that were measured in the same way.
    job = replace(job, plan=replace(job.plan, one_pass=result.one_pass))
    # Which backend the script takes, and of which version, is known only when it has run.
    known_later = replace(here, backend=wanted.backend, nccl=wanted.nccl)
    _check_same(result, wanted, _fingerprint(job, known_later))
    subject = replace(
        _subject(job, result.name), base_commit=stored.commit, candidate_commit=here.git_commit
    )
    known = calibration_files.load(_calibrated_job(job))
    outcome = _or_why_not(
        subject, job, lambda: _beside_stored(job, subject, (stored, result), observer, known)
    )
    return _timed(outcome, began_s)


def record_plan(job: GateJob) -> SweepPlan:
    """The sweep that makes a result for ``gate_result``: 1 device and as many as are gated."""
    return replace(
        job.plan,
        devices=tuple(sorted({1, job.options.devices})),
        rounds=RECORD_ROUNDS,
        seconds=RECORD_ROUNDS * job.options.seconds,
        rungs=LADDER,
    )


def record(job: GateJob, observer: Observer, *, force: bool) -> FinishedSweep:
    """Make and store such a result; ``force`` replaces one of the same name."""
    return run_sweep(record_plan(job), job.machine, observer, command=job.command, replace=force)


def calibrate_here(job: GateJob, observer: GateObserver, *, count: int) -> Calibration:
    """Measure A/A pairs of the working tree, and what follows from them.

    Raises:
        ScriptError, MeasureError: the script is broken, or cannot be measured.
    """
    script = job.plan.target.script
    root = None if "site-packages" in script.parts else _repository(script)
    here = nullcontext(None) if root is None else checked_out(root, "HEAD", identical=True)
    with here as arms, opened(job, observer) as sides:
        slots, pair_s = _identical_pairs(job, sides.measure_in(arms), count)
    what = _calibrated_job(job)
    return calibrate(
        slots,
        job.options,
        fingerprint=what.fingerprint,
        script=what.script,
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        pair_s=pair_s,
    )


def _identical_pairs(job: GateJob, measure: Measure, count: int) -> tuple[list[SlotValue], float]:
    """Slots of A/A pairs, and what a pair takes in s."""
    slots, took_s = [], []
    orders = pair_orders(job.options.seed)
    for pair in range(count):
        began_s = time.monotonic()
        slots += [measure(arm, pair) for arm in next(orders)]
        took_s.append(time.monotonic() - began_s)
    return slots, statistics.median(took_s)


def _repository(script: Path) -> Path | None:
    try:
        return root_of(script)
    except UsageError:
        return None


def _side_by_side(
    job: GateJob, subject: Subject, arms: Arms, observer: GateObserver, known: Calibration | None
) -> GateOutcome:
    with opened(job, observer) as sides:
        judge, note = _judge(job, Paired(job.options.devices), known)

        @contextmanager
        def again() -> Iterator[Measure]:
            with swapped(arms) as other:
                yield sides.measure_in(other)

        measure = sides.measure_in(arms, ladder_pairs=LADDER_PAIRS)
        loop = PairLoop(judge, pair_orders(job.options.seed), time.monotonic)
        compared = loop.run(measure, again)
    subject = replace(subject, only_read=sides.only_read)
    anchor = median([slot.solo_samples_per_s for slot in sides.slots["base"]])
    base = _result(job, sides, arms, "base", f"base {subject.against}", anchor)
    candidate = _result(job, sides, arms, "candidate", "candidate", anchor)
    seen = _seen(base, candidate)
    return GateOutcome(
        report=compared_report(subject, judge, compared, seen, calibration=note),
        base=base,
        candidate=candidate,
    )


def _beside_stored(
    job: GateJob,
    subject: Subject,
    against: tuple[Stored, SweepResult],
    observer: GateObserver,
    known: Calibration | None,
) -> GateOutcome:
    stored, result = against
    wanted = of_result(result, job.options.devices)
    with opened(job, observer) as sides:
        judge, note = _judge(job, AgainstStored(stored), known)
        measure = sides.measure_in(None, ladder_pairs=LADDER_PAIRS)

        def of_same_job(arm: ArmName, pair: int) -> SlotValue:
            slot = measure(arm, pair)
            if slot.cached_samples_per_s is None:
                raise MeasureError(
                    "candidate: the cached rung could not run, so nothing tells a slower machine "
                    "from slower code. Compare side by side with --base."
                )
            if pair == 0:
                launched = _environment(job, sides)
                _check_same(result, wanted, _fingerprint(job, launched))
            return slot

        loop = PairLoop(judge, repeat(("candidate",)), time.monotonic)
        compared: Compared = loop.run(of_same_job, lambda: nullcontext(sides.measure_in(None)))
    candidate = _result(job, sides, None, "candidate", "candidate", stored.solo_samples_per_s)
    seen = _seen(result, candidate)
    return GateOutcome(
        report=compared_report(subject, judge, compared, seen, stored=stored, calibration=note),
        base=result,
        candidate=candidate,
    )


def _or_why_not(subject: Subject, job: GateJob, measure: Callable[[], GateOutcome]) -> GateOutcome:
    """What was measured, or the verdict of a side that gave nothing."""
    try:
        return measure()
    except ScriptError as error:
        report = unmeasured_report(subject, job.options, "broken", str(error))
    except MeasureError as error:
        report = unmeasured_report(subject, job.options, "not-measured", str(error))
    return GateOutcome(report=report)


def _judge(
    job: GateJob, evidence: Contrast, known: Calibration | None
) -> tuple[Judge, CalibrationNote | None]:
    """With the control band that this machine was calibrated to, if it was."""
    if known is None:
        return Judge(evidence, job.options, BAND), None
    note = calibration_files.note(known, datetime.now(timezone.utc))
    return Judge(evidence, job.options, known.control_band), note


def _subject(job: GateJob, against: str) -> Subject:
    target = job.plan.target
    return Subject(target=target.name, script_args=target.args, against=against)


def _environment(job: GateJob, sides: Sides | None = None) -> Environment:
    launches = sides.launches["candidate"] if sides is not None else []
    now = datetime.now(timezone.utc)
    return environment(job.plan, job.machine, launches, job.command, now)


def _fingerprint(job: GateJob, here: Environment) -> Fingerprint:
    plan = job.plan
    return fingerprint(
        here,
        devices=job.options.devices,
        device=plan.device_type,
        scaling=plan.scaling,
        target=plan.target.name,
        script_args=plan.target.args,
    )


def _calibrated_job(job: GateJob) -> calibration_files.Job:
    """Without the backend, which is known only when the script has run."""
    target = job.plan.target
    return calibration_files.Job(
        fingerprint=replace(_fingerprint(job, _environment(job)), backend=None),
        script=target.typed,
        seconds=job.options.seconds,
    )


def _check_same(result: SweepResult, stored: Fingerprint, here: Fingerprint) -> None:
    differ = differences(stored, here)
    if differ:
        lines = "".join(f"\n    {line}" for line in differ)
        raise UsageError(
            f"{result.name} was not measured on this machine, of this job:{lines}\n"
            "Make one here with `sfbench gate record`, or compare side by side with --base."
        )


def _result(
    job: GateJob, sides: Sides, arms: Arms | None, arm: ArmName, name: str, anchor: float | None
) -> SweepResult:
    plan, now = job.plan, datetime.now(timezone.utc)
    launches = sides.launches[arm]
    if arms is not None:
        checked_out_plan, _ = in_checkout(plan, arms.get(arm))
        found = environment(checked_out_plan, job.machine, launches, job.command, now)
        found = replace(found, git_commit=arms.get(arm).commit)
    else:
        found = environment(plan, job.machine, launches, job.command, now)
    side = Side(
        name=name, launches=tuple(launches), slots=tuple(sides.slots[arm]), environment=found
    )
    return side_result(side, plan, job.machine, anchor)


def _seen(base: SweepResult, candidate: SweepResult) -> SidesParts:
    devices = candidate.points[0].devices
    before = next(point for point in base.points if point.devices == devices)
    after = candidate.points[0]
    return SidesParts(
        base=parts_of(before.time_share),
        candidate=parts_of(after.time_share),
        base_half_width=half_widths_of(before.time_share),
        candidate_half_width=half_widths_of(after.time_share),
        base_samples_per_step=before.global_batch,
        candidate_samples_per_step=after.global_batch,
        emulated=candidate.emulated,
        oversubscribed=after.oversubscribed,
    )


def _timed(outcome: GateOutcome, began_s: float) -> GateOutcome:
    duration_s = time.monotonic() - began_s
    return replace(outcome, report=replace(outcome.report, duration_s=duration_s))
