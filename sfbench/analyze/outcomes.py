"""How the launches of a point ended, for those who read the point."""

from __future__ import annotations

from collections.abc import Sequence

from sfbench.analyze.measured import MeasuredPoint
from sfbench.analyze.rates import JobRate, LaunchRate
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import LaunchSummary, Point

NO_STEADY_STATE = (
    "no steady state: step times kept rising or falling, by more than 10% and in all launches "
    "alike. Look for what grows in the script, or give it more time with --seconds"
)
NO_STEPS = "no train step was measured in steady state: give it more time with --seconds"


def failed_point(launches: Sequence[MeasuredLaunch], unsteady: Sequence[int]) -> Point:
    """The point that launches without a number make; ``unsteady``: those that never settled."""
    all_hung = all(m.outcome.status == "timeout" for m in launches)
    first = next((m for m in launches if m.record is None), launches[0])
    error = first.outcome.error
    return Point(
        devices=first.plan.devices,
        status="timeout" if all_hung else "failed",
        error=why(first, unsteady),
        script_fault=error is not None and error.script_fault,
        loop=next((m.record.loop for m in launches if m.record), None),
    )


def why(launch: MeasuredLaunch, unsteady: Sequence[int]) -> str:
    """Why a launch gave no number: the message, the rank's last lines, the log."""
    error = launch.outcome.error
    if error is not None:
        log = (f"log: {error.log}",) if error.log else ()
        return "\n".join((error.message, *error.last_lines, *log))
    return NO_STEADY_STATE if launch.plan.index in unsteady else NO_STEPS


def lost_launches(
    launches: Sequence[MeasuredLaunch], measured: MeasuredPoint, unsteady: Sequence[int]
) -> tuple[str, ...]:
    """A warning for each launch of an ok point that gave no number."""
    used = {m.plan.index for m in measured.launches}
    return tuple(
        f"the launch of round {m.plan.round + 1} is left out: {why(m, unsteady).splitlines()[0]}"
        for m in launches
        if m.plan.index not in used
    )


def restless(measured: MeasuredPoint, launches: Sequence[int]) -> tuple[str, ...]:
    """A warning if most launches changed their speed meanwhile, and chance may explain it."""
    some = sum(1 for m in measured.launches if m.plan.index in set(launches))
    if 2 * some <= len(measured.launches):
        return ()
    return (
        f"steps became faster or slower by more than 10% within {some} of "
        f"{len(measured.launches)} launches, which may be chance: all are kept, and the interval "
        "is as wide as they differ. Free the machine of other work, or use more --seconds",
    )


def summaries(
    launches: Sequence[MeasuredLaunch], measured: MeasuredPoint | None, began_s: float
) -> tuple[LaunchSummary, ...]:
    """Every launch of a point, in order. ``began_s``: when the sweep began (time.monotonic())."""
    rates = _by_launch(measured.rate) if measured else {}
    cached = _by_launch(measured.cached) if measured and measured.cached else {}
    ordered = sorted(launches, key=lambda m: m.plan.index)
    return tuple(
        _summary(m, rates.get(m.plan.index), cached.get(m.plan.index), began_s) for m in ordered
    )


def _by_launch(rate: JobRate) -> dict[int, LaunchRate]:
    return {one.launch: one for one in rate.launches}


def _summary(
    launch: MeasuredLaunch, rate: LaunchRate | None, cached: LaunchRate | None, began_s: float
) -> LaunchSummary:
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
        cached_blocks=tuple(float(b) for b in cached.blocks) if rate and cached else (),
    )
