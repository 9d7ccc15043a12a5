"""Launches in, points out: everything that sweep.json says about each device count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from sfbench.analyze import traces
from sfbench.analyze.drift import LEAST_SOLO_PART, drift_corrected
from sfbench.analyze.efficiency import efficiency
from sfbench.analyze.epoch_time import epoch_time
from sfbench.analyze.intervals import (
    LaunchVariance,
    launch_variance,
    loosened,
    ratio_interval,
    spread,
)
from sfbench.analyze.measured import MeasuredPoint, measure_point
from sfbench.analyze.outcomes import failed_point, lost_launches, restless, summaries
from sfbench.analyze.stalls import Stalls, find_stalls
from sfbench.analyze.steps import job_steps
from sfbench.analyze.stretch import stretch
from sfbench.analyze.warmup import Labelled, label_warmup
from sfbench.analyze.warnings import compared_warnings, measured_warnings, not_comparable
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import Interval, Point
from sfbench.common.units import is_known
from sfbench.plan.machine import Machine
from sfbench.plan.planner import best_possible_efficiency, oversubscribed
from sfbench.plan.sweep_plan import SweepPlan


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
    strong_by_script: bool = False
    """The script keeps the global batch constant, although weak scaling was asked for."""

    @property
    def emulated(self) -> bool:
        """Whether an accelerator that is not there was measured."""
        return any(point.loop is not None and point.loop.emulated for point in self.points)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sweep:
    """What every point is seen against."""

    plan: SweepPlan
    machine: Machine
    labelled: Labelled
    launches: Mapping[int, Sequence[MeasuredLaunch]]
    """By device count, ascending; interrupted ones left out."""
    measured: Mapping[int, MeasuredPoint | None]
    shared: LaunchVariance | None
    """Variance of log samples/s between launches."""
    began_s: float


def analyze(
    plan: SweepPlan, machine: Machine, launches: Sequence[MeasuredLaunch], steps: pd.DataFrame
) -> Analysis:
    """Make the points of a sweep.

    Args:
        plan: what was asked for.
        machine: its cores tell oversubscription.
        launches: in any order; interrupted ones count as never made.
        steps: ``step_frame`` of the same launches.

    A launch that failed, or never came to a steady state, gives no number; a point is ok if at
    least one of its launches is.
    """
    sweep = _sweep(plan, machine, launches, steps)
    return Analysis(
        points=tuple(_point(sweep, devices) for devices in sweep.launches),
        steps=sweep.labelled.steps,
        measured=tuple(point for point in sweep.measured.values() if point is not None),
        warnings=_sweep_warnings(sweep.measured),
        strong_by_script=_strong_by_script(sweep),
    )


def _sweep(
    plan: SweepPlan, machine: Machine, launches: Sequence[MeasuredLaunch], steps: pd.DataFrame
) -> _Sweep:
    ended = [m for m in launches if m.outcome.status != "interrupted"]
    by_devices = {
        n: [m for m in ended if m.plan.devices == n]
        for n in sorted({m.plan.devices for m in ended})
    }
    stalls = {n: find_stalls(by_devices[n], _of(steps, n, by_devices)) for n in by_devices}
    if stalls:
        steps = pd.concat([one.steps for one in stalls.values()]).sort_index()
    job = job_steps(steps)
    labelled = Labelled(steps=steps, job=job, unsteady=())
    if plan.warmup_steps is None:
        labelled = label_warmup(steps, job)
    measured = {n: _measure(plan, by_devices[n], labelled, stalls[n]) for n in by_devices}
    rates = [point.rate for point in measured.values() if point is not None]
    return _Sweep(
        plan=plan,
        machine=machine,
        labelled=labelled,
        launches=by_devices,
        measured=measured,
        shared=launch_variance([rate.log_blocks for rate in rates]),
        began_s=min((m.outcome.start_s for m in ended), default=0.0),
    )


def _measure(
    plan: SweepPlan, launches: Sequence[MeasuredLaunch], labelled: Labelled, stalls: Stalls
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
        stalls=stalls,
    )


def _of(
    steps: pd.DataFrame, devices: int, launches: Mapping[int, Sequence[MeasuredLaunch]]
) -> pd.DataFrame:
    wanted = [m.plan.index for m in launches[devices]]
    return steps[steps["launch"].isin(wanted).to_numpy()]


def _point(sweep: _Sweep, devices: int) -> Point:
    launches, measured = sweep.launches[devices], sweep.measured[devices]
    if measured is None:
        point = failed_point(launches, sweep.labelled.unsteady)
    else:
        point = _compared(sweep, _crowded(sweep, _alone(sweep, measured)), measured)
    return replace(point, launches=summaries(launches, measured, sweep.began_s))


def _alone(sweep: _Sweep, measured: MeasuredPoint) -> Point:
    """A point by itself, not yet compared with 1 device."""
    rate, devices, stall_error = measured.rate, measured.devices, measured.stall_error
    steps = _steps_of(sweep, measured)
    peaks = traces.peak_memory(measured.launches)
    return Point(
        devices=devices,
        status="ok",
        samples_per_s=loosened(
            ratio_interval(rate.samples_per_s, spread(rate.log_blocks, sweep.shared)), stall_error
        ),
        step_s=loosened(
            ratio_interval(rate.seconds / rate.steps, spread(rate.log_step_s, sweep.shared)),
            stall_error,
        ),
        steps_measured=rate.steps,
        warmup_steps=_warmup_steps(sweep, measured),
        batch_per_device=measured.samples_per_step / devices,
        global_batch=measured.samples_per_step,
        time_share=measured.shares.time_share if measured.shares else None,
        stalls=measured.stalls.found if measured.stalls else (),
        stalls_seen_up_to_steps=_longest_launch(sweep, measured),
        epoch=epoch_time(measured),
        slow_rank=measured.slow_rank,
        ranks=tuple(replace(r, peak_memory_bytes=peaks.get(r.rank)) for r in measured.ranks),
        step_quantiles=measured.quantiles,
        loop=next(m.record.loop for m in measured.launches if m.record),
        warnings=(
            *not_comparable(sweep.plan, measured),
            *lost_launches(sweep.launches[devices], measured, sweep.labelled.unsteady),
            *restless(measured, sweep.labelled.restless),
            *measured_warnings(measured),
        ),
        all_reduce=traces.reduce_times(measured.launches),
        batch_times=traces.batch_times(steps) if devices == 1 else (),
        beginning=traces.beginning(steps),
        own_steps=traces.own_steps(steps),
        stretch=stretch(steps),
    )


def _longest_launch(sweep: _Sweep, measured: MeasuredPoint) -> int:
    steps = _of(sweep.labelled.steps, measured.devices, sweep.launches)
    return int(steps["step"].max()) + 1


def _steps_of(sweep: _Sweep, measured: MeasuredPoint) -> pd.DataFrame:
    steps = sweep.labelled.steps
    wanted = [m.plan.index for m in measured.launches]
    return steps[steps["launch"].isin(wanted).to_numpy()]


def _warmup_steps(sweep: _Sweep, measured: MeasuredPoint) -> int:
    """The longest warmup among the launches."""
    steps = _steps_of(sweep, measured)
    rows = steps.loc[steps["warmup"].to_numpy(), ["launch", "step"]]
    return int(rows.groupby("launch")["step"].nunique().max()) if len(rows) else 0


def _crowded(sweep: _Sweep, point: Point) -> Point:
    """Mark an ok point whose devices share cores. Emulated ones leave the CPU idle and do not."""
    on_a_node = sweep.plan.spread(point.devices)[0]
    emulated = point.loop is not None and point.loop.emulated
    if emulated or not oversubscribed(sweep.plan, on_a_node, sweep.machine):
        return point
    most = best_possible_efficiency(sweep.plan, on_a_node, sweep.machine)
    return replace(point, oversubscribed=True, best_possible_efficiency=most)


def _compared(sweep: _Sweep, point: Point, here: MeasuredPoint) -> Point:
    """Add what comparing with the point at 1 device tells."""
    one = sweep.measured.get(1)
    if one is None:
        return point
    plain = loosened(
        efficiency(point.devices, here.rate, one.rate, sweep.shared), _both_errors(here, one)
    )
    corrected = _corrected(here, one)
    shown = _shown(plain, corrected, one)
    point = replace(
        point,
        ideal_samples_per_s=point.devices * one.rate.samples_per_s,
        efficiency=shown,
        efficiency_from="solo-rung" if shown is corrected else "samples-per-s",
        efficiency_plain=plain,
        efficiency_drift_corrected=corrected,
    )
    more = compared_warnings(sweep.plan, point, here, one)
    return replace(point, warnings=(*point.warnings, *more))


def _shown(plain: Interval, corrected: Interval | None, one: MeasuredPoint) -> Interval:
    """The efficiency that is shown: the corrected one if it can be.

    A solo step that is a small part of a train step tells the speed of that part alone, and its
    noise would move the whole. A figure is better than none.
    """
    if corrected is None or one.solo is None:
        return plain
    trusted = is_known(corrected) and one.solo.part >= LEAST_SOLO_PART
    return corrected if trusted or not is_known(plain) else plain


def _corrected(here: MeasuredPoint, one: MeasuredPoint) -> Interval | None:
    """Only if a solo step is the same work at both counts, and the answer has an interval."""
    ratio = here.samples_per_step / here.devices / one.samples_per_step
    if here.solo is None or one.solo is None or not here.same_batch(one, here.devices):
        return None
    # Cycles hold no stalls: what these add to a step at either count comes on top.
    ratio *= one.longer_by_stalls / here.longer_by_stalls
    corrected = drift_corrected(here.devices, ratio, here.solo, one.solo)
    if corrected.low is None:
        return None
    return loosened(corrected, _both_errors(here, one))


def _both_errors(here: MeasuredPoint, one: MeasuredPoint) -> float:
    """At 1 device an efficiency is exactly 1."""
    return 0.0 if here is one else math.hypot(here.stall_error, one.stall_error)


def _strong_by_script(sweep: _Sweep) -> bool:
    one = sweep.measured.get(1)
    others = [m for m in sweep.measured.values() if m is not None and m.devices > 1]
    if sweep.plan.scaling == "strong" or one is None or not others:
        return False
    return all(m.same_batch(one) and not m.same_batch(one, m.devices) for m in others)


def _sweep_warnings(measured: Mapping[int, MeasuredPoint | None]) -> tuple[str, ...]:
    if not any(measured.values()) or measured.get(1) is not None:
        return ()
    if 1 in measured:
        return ("no efficiency: there is no figure at 1 device to compare with; see its error",)
    return ("no efficiency: 1 device was not measured; add 1 to --devices",)
