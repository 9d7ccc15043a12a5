"""One side's launches as a sweep result of one point, for the HTML report and the parts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sfbench.analyze.points import analyze
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import LADDER, Environment, Interval, Point, SweepResult
from sfbench.gating.gate_report import SlotValue
from sfbench.gating.statistics.decision import MIN_VALUES, centre, level
from sfbench.plan.machine import Machine
from sfbench.plan.sweep_plan import SweepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What was launched of one side."""

    name: str
    launches: tuple[MeasuredLaunch, ...]
    slots: tuple[SlotValue, ...]
    """One per launch."""
    environment: Environment


def side_result(side: Side, plan: SweepPlan, machine: Machine, anchor: float | None) -> SweepResult:
    """Analyze the launches of one side, all at the same device count.

    ``anchor``: the base's samples/s at one device, what efficiency is measured by; there is no
    point at 1 device.
    """
    ladder = replace(plan, rungs=LADDER)
    analysis = analyze(ladder, machine, side.launches, step_frame(side.launches))
    return SweepResult(
        name=side.name,
        target=plan.target.typed,
        script_args=plan.target.args,
        device_type=plan.device_type,
        emulated=analysis.emulated,
        scaling=plan.scaling,
        one_pass=plan.one_pass,
        points=tuple(_anchored(point, side.slots, anchor) for point in analysis.points),
        environment=side.environment,
        duration_s=sum(launch.outcome.wall_s for launch in side.launches),
    )


def _anchored(point: Point, slots: Sequence[SlotValue], anchor: float | None) -> Point:
    if anchor is None or point.status != "ok":
        return point
    ideal = point.devices * anchor
    ratios = [slot.samples_per_s / ideal for slot in slots]
    efficiency = Interval(value=statistics.median(ratios), low=None, high=None)
    if len(ratios) >= MIN_VALUES:
        found = level(centre([math.log(ratio) for ratio in ratios]))
        efficiency = Interval(value=found.value, low=found.low, high=found.high)
    return replace(point, efficiency=efficiency, ideal_samples_per_s=ideal)
