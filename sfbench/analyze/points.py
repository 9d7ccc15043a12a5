"""Launches in, points out: everything that sweep.json says about each device count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from sfbench.analyze.drift import drift_corrected
from sfbench.analyze.efficiency import efficiency
from sfbench.analyze.intervals import ratio_interval
from sfbench.analyze.measured import MeasuredPoint, measure_point
from sfbench.analyze.rates import LaunchRate
from sfbench.analyze.steps import job_steps
from sfbench.analyze.warmup import Labelled, label_warmup
from sfbench.analyze.warnings import SAME_BATCH, compared_warnings, measured_warnings
from sfbench.collect.model import MeasuredLaunch
from sfbench.plan.machine import Machine
from sfbench.plan.model import SweepPlan
from sfbench.schema import Interval, LaunchSummary, Point

NO_STEADY_STATE = (
    "no steady state: step times were still changing beyond half of the run (MSER-5). "
    "Give it more time with --seconds, or set the steps to leave out with --warmup"
)
NO_STEPS = "no train step was measured in steady state: give it more time with --seconds"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Analysis:
    """What a sweep's launches add up to."""

    points: tuple[Point, ...]
    """One per device count that was tried, ascending."""
    steps: pd.DataFrame
    """The step frame with warmup labelled: what ``steps.parquet`` holds."""
    measured: tuple[MeasuredPoint, ...]
    """What the ok points are made of, ascending."""
    warnings: tuple[str, ...]
    """What concerns all points."""

    @property
    def emulated(self) -> bool:
        """Whether an accelerator that is not there was measured."""
        return any(point.loop is not None and point.loop.emulated for point in self.points)


def analyze(
    plan: SweepPlan, machine: Machine, launches: Sequence[MeasuredLaunch], steps: pd.DataFrame
) -> Analysis:
    """Make the points of a sweep.

    Args:
        plan: what was asked for.
        machine: its cores tell oversubscription.
        launches: in any order; interrupted ones count as never made.
        steps: ``step_frame`` of the same launches.

    A launch that failed, or never came to a steady state, gives no number; a point is ok where at
    least one of its launches is.
    """
    ended = [m for m in launches if m.outcome.status != "interrupted"]
    job = job_steps(steps)
    labelled = Labelled(steps=steps, job=job, unsteady=())
    if plan.warmup_steps is None:
        labelled = label_warmup(steps, job)
    began_s = min((m.outcome.start_s for m in ended), default=0.0)
    tried = sorted({m.plan.devices for m in ended})
    by_devices = {n: [m for m in ended if m.plan.devices == n] for n in tried}
    measured = {n: _measure(plan, by_devices[n], labelled) for n in tried}
    points = []
    for devices, here in measured.items():
        point = _point(plan, by_devices[devices], here, labelled)
        summaries = _summaries(by_devices[devices], here, began_s)
        point = _crowded(plan, replace(point, launches=summaries), machine.usable_cores)
        points.append(_compared(plan, point, here, measured.get(1)))
    return Analysis(
        points=tuple(points),
        steps=labelled.steps,
        measured=tuple(here for here in measured.values() if here is not None),
        warnings=_sweep_warnings(measured),
    )


def _measure(
    plan: SweepPlan, launches: Sequence[MeasuredLaunch], labelled: Labelled
) -> MeasuredPoint | None:
    good = [m for m in launches if m.record and m.plan.index not in labelled.unsteady]
    if not good:
        return None
    wanted = [m.plan.index for m in good]
    return measure_point(
        good,
        labelled.steps[labelled.steps["launch"].isin(wanted).to_numpy()],
        labelled.job[labelled.job["launch"].isin(wanted).to_numpy()],
        ladder=plan.rungs != ("train",),
    )


def _point(
    plan: SweepPlan,
    launches: Sequence[MeasuredLaunch],
    measured: MeasuredPoint | None,
    labelled: Labelled,
) -> Point:
    """A point by itself, not yet compared with 1 device."""
    devices = launches[0].plan.devices
    if measured is None:
        return _failed(launches, labelled)
    rate = measured.rate
    return Point(
        devices=devices,
        status="ok",
        samples_per_s=ratio_interval(rate.samples_per_s, rate.log_spread),
        step_s=ratio_interval(rate.seconds / rate.steps, rate.log_step_spread),
        steps_measured=rate.steps,
        warmup_steps=_warmup_steps(measured, labelled),
        batch_per_device=measured.samples_per_step / devices,
        global_batch=measured.samples_per_step,
        time_share=measured.shares.time_share if measured.shares else None,
        slow_rank=measured.slow_rank,
        ranks=measured.ranks,
        step_quantiles=measured.quantiles,
        loop=next(m.record.loop for m in measured.launches if m.record),
        warnings=(
            *_lost_launches(launches, measured, labelled),
            *measured_warnings(plan, measured),
        ),
    )


def _failed(launches: Sequence[MeasuredLaunch], labelled: Labelled) -> Point:
    all_hung = all(m.outcome.status == "timeout" for m in launches)
    first = next((m for m in launches if m.record is None), launches[0])
    loops = [m.record.loop for m in launches if m.record]
    return Point(
        devices=first.plan.devices,
        status="timeout" if all_hung else "failed",
        error=_why(first, labelled),
        script_fault=first.outcome.error is not None and first.outcome.error.script_fault,
        loop=loops[0] if loops else None,
    )


def _why(launch: MeasuredLaunch, labelled: Labelled) -> str:
    """Why a launch gave no number: the message, the rank's last lines, the log."""
    error = launch.outcome.error
    if error is not None:
        log = (f"log: {error.log}",) if error.log else ()
        return "\n".join((error.message, *error.last_lines, *log))
    if launch.plan.index in labelled.unsteady:
        return NO_STEADY_STATE
    return NO_STEPS


def _lost_launches(
    launches: Sequence[MeasuredLaunch], measured: MeasuredPoint, labelled: Labelled
) -> tuple[str, ...]:
    used = {m.plan.index for m in measured.launches}
    return tuple(
        f"the launch of round {m.plan.round} is left out: {_why(m, labelled).splitlines()[0]}"
        for m in launches
        if m.plan.index not in used
    )


def _warmup_steps(measured: MeasuredPoint, labelled: Labelled) -> int:
    """The longest warmup among the launches."""
    wanted = [m.plan.index for m in measured.launches]
    warmup = labelled.steps["warmup"] & labelled.steps["launch"].isin(wanted)
    rows = labelled.steps.loc[warmup.to_numpy(), ["launch", "step"]]
    return int(rows.groupby("launch")["step"].nunique().max()) if len(rows) else 0


def _summaries(
    launches: Sequence[MeasuredLaunch], measured: MeasuredPoint | None, began_s: float
) -> tuple[LaunchSummary, ...]:
    rates = {one.launch: one for one in measured.rate.launches} if measured else {}
    ordered = sorted(launches, key=lambda m: m.plan.index)
    return tuple(_summary(m, rates.get(m.plan.index), began_s) for m in ordered)


def _summary(launch: MeasuredLaunch, rate: LaunchRate | None, began_s: float) -> LaunchSummary:
    record = launch.record
    return LaunchSummary(
        launch=launch.plan.index,
        round=launch.plan.round,
        status="ok" if rate else "timeout" if launch.outcome.status == "timeout" else "failed",
        samples_per_s=rate.samples_per_s if rate else None,
        steps=rate.steps if rate else 0,
        start_s=launch.outcome.start_s - began_s,
        wall_s=launch.outcome.wall_s,
        setup_s=record.setup_s if record else 0.0,
        warmup_s=record.warmup_s if record else 0.0,
        measured_s=record.measured_s if record else 0.0,
        blocks=tuple(float(b) for b in rate.blocks) if rate else (),
    )


def _crowded(plan: SweepPlan, point: Point, cores: int) -> Point:
    """Mark an ok point whose devices share cores. Emulated ones leave the CPU idle and do not."""
    emulated = point.loop is not None and point.loop.emulated
    wanted = -(-point.devices // plan.nnodes) * plan.threads_per_device
    if point.status != "ok" or plan.device_type != "cpu" or emulated or wanted <= cores:
        return point
    alone = min(1.0, cores / plan.threads_per_device)
    return replace(point, oversubscribed=True, best_possible_efficiency=cores / wanted / alone)


def _compared(
    plan: SweepPlan, point: Point, here: MeasuredPoint | None, one: MeasuredPoint | None
) -> Point:
    """Add what comparing with the point at 1 device tells."""
    if here is None or one is None:
        return point
    point = replace(
        point,
        ideal_samples_per_s=point.devices * one.rate.samples_per_s,
        efficiency=efficiency(point.devices, here.rate, one.rate),
    )
    point = replace(point, efficiency_drift_corrected=_corrected(point, here, one))
    more = compared_warnings(plan, point, here.samples_per_step, one)
    return replace(point, warnings=(*point.warnings, *more))


def _sweep_warnings(measured: Mapping[int, MeasuredPoint | None]) -> tuple[str, ...]:
    if not any(measured.values()) or measured.get(1) is not None:
        return ()
    if 1 in measured:
        return ("no efficiency: there is no figure at 1 device to compare with; see its error",)
    return ("no efficiency: 1 device was not measured; add 1 to --devices",)


def _corrected(point: Point, here: MeasuredPoint, one: MeasuredPoint) -> Interval | None:
    """Only where a solo step is the same work at both counts."""
    per_device = here.samples_per_step / point.devices
    same_work = bool(np.isclose(per_device, one.samples_per_step, rtol=SAME_BATCH))
    if here.solo is None or one.solo is None or point.efficiency is None or not same_work:
        return None
    return drift_corrected(point.devices, point.efficiency.value, here.solo, one.solo)
