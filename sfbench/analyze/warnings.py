"""What a reader of a point's numbers must know before believing them. Each ends with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from sfbench.analyze.drift import disagree
from sfbench.analyze.efficiency import SUSPECT_ABOVE
from sfbench.analyze.measured import SAME_BATCH, MeasuredPoint
from sfbench.common import units
from sfbench.common.schema import Interval, Point
from sfbench.plan.sweep_plan import SweepPlan

MIN_STEPS = 20
"""With fewer measured steps a point rests on little."""
OTHER_WORK = 0.2
"""Time outside of training steps is said if it is more than this part."""


def measured_warnings(point: MeasuredPoint) -> tuple[str, ...]:
    """Warnings that the point gives rise to by itself."""
    return tuple(
        chain(
            _few_steps(point),
            _torn(point),
            _uneven(point),
            _disturbed(point),
            _ended_early(point),
            _other_work(point),
            _notes(point),
        )
    )


def compared_warnings(
    plan: SweepPlan, point: Point, here: MeasuredPoint, one: MeasuredPoint
) -> tuple[str, ...]:
    """Warnings that come from comparing ``point`` with the point at 1 device."""
    return tuple(
        chain(
            _batch(plan, point.devices, here, one),
            _suspect(point.efficiency),
            _drift(point.efficiency_plain, point.efficiency_drift_corrected),
        )
    )


def not_comparable(plan: SweepPlan, point: MeasuredPoint) -> Iterator[str]:
    """What no other figure of the point can be read without: it stands first."""
    seen = {
        info.threads for m in point.launches if m.record is not None for info in m.record.ranks
    } - {plan.threads_per_device}
    if seen:
        counts = ", ".join(str(n) for n in sorted(seen))
        yield (
            f"not comparable: ranks ran {counts} threads, {plan.threads_per_device} were set; "
            "the script changes them. Take that out of the script, or set --threads-per-device"
        )


def _few_steps(point: MeasuredPoint) -> Iterator[str]:
    if point.rate.steps < MIN_STEPS:
        yield (
            f"only {units.things(point.rate.steps, 'step')} measured: give it more time with "
            "--seconds, or the script more data"
        )


def _other_work(point: MeasuredPoint) -> Iterator[str]:
    if point.other_share > OTHER_WORK:
        yield (
            f"{units.percent(point.other_share)} of the time went to what was taken for "
            "validation or saving (forwards without gradients between steps, other loaders, "
            "torch.save); no figure here includes it. If it is part of training, the job is slower "
            "by as much"
        )


def _torn(point: MeasuredPoint) -> Iterator[str]:
    if point.torn_steps:
        yield (
            f"left out {point.torn_steps} train steps that only some ranks measured: "
            "the ranks do not make the same steps"
        )


def _uneven(point: MeasuredPoint) -> Iterator[str]:
    low, high = float(np.min(point.rank_samples)), float(np.max(point.rank_samples))
    if high > low * (1 + SAME_BATCH):
        yield (
            f"ranks take {units.count(round(low, 1))} to {units.count(round(high, 1))} samples per "
            "step: give each rank the same share, as DistributedSampler with drop_last does"
        )


def _disturbed(point: MeasuredPoint) -> Iterator[str]:
    if point.disturbed_cycles and point.shares is not None:
        total = point.disturbed_cycles + point.shares.cycles
        yield (
            f"{point.disturbed_cycles} of {units.things(total, 'cycle')} left out of the time "
            "shares: single steps took many times as long as others. Free the machine of other work"
        )


def _ended_early(point: MeasuredPoint) -> Iterator[str]:
    ended = sum(1 for m in point.launches if m.record is not None and m.record.ended_early)
    if ended:
        yield (
            f"the script ended by itself before the measuring time was used, in {ended} of "
            f"{units.things(len(point.launches), 'launch')}: give it more epochs or data for a "
            "narrower interval"
        )


def _notes(point: MeasuredPoint) -> Iterator[str]:
    notes = [m.outcome.notes + (m.record.notes if m.record else ()) for m in point.launches]
    yield from dict.fromkeys(chain.from_iterable(notes))


def _batch(plan: SweepPlan, devices: int, here: MeasuredPoint, one: MeasuredPoint) -> Iterator[str]:
    if here.same_batch(one, 1 if plan.scaling == "strong" else devices):
        return
    if plan.scaling == "strong":
        yield (
            f"global batch is {units.count(here.usual_samples)} here and "
            f"{units.count(one.usual_samples)} at 1 device: this is not strong scaling; check "
            "--global-batch and the script's batch size"
        )
    elif here.same_batch(one):
        yield (
            f"strong scaling, by the script: its global batch is {units.count(one.usual_samples)} "
            "at 1 device and here, so that each device has less to do; efficiency is what the "
            "speed-up reaches of the device count. Scale weakly by a batch per device that does "
            "not depend on WORLD_SIZE"
        )
    else:
        yield (
            f"batch per device is {units.count(here.usual_samples / devices)} here and "
            f"{units.count(one.usual_samples)} at 1 device: the script changes it with the device "
            "count, and keeps neither it nor the global batch. Efficiency compares samples/s all "
            "the same; fix one of the two in the script"
        )


def _suspect(efficiency: Interval | None) -> Iterator[str]:
    if efficiency is not None and efficiency.value > SUSPECT_ABOVE:
        yield (
            f"efficiency {units.percent_interval(efficiency)} is above "
            f"{units.percent(SUSPECT_ABOVE)}: suspect the 1-device baseline. Usual causes: data "
            "read for the first time at 1 device (cold page cache), other threads, another batch "
            "per device. Run the sweep again, with more --rounds"
        )


def _drift(plain: Interval | None, corrected: Interval | None) -> Iterator[str]:
    if plain is not None and corrected is not None and disagree(plain, corrected):
        yield (
            f"the machine changed its speed during the sweep: efficiency is "
            f"{units.percent_interval(plain)} as measured and "
            f"{units.percent_interval(corrected)} with that drift taken out. "
            "Free the machine of other work, or use more --rounds"
        )
