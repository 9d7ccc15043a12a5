"""One launch of one side becomes one value per figure. Frame in, value out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sfbench.analyze.measured import MeasuredPoint, measure_point
from sfbench.analyze.steps import job_steps
from sfbench.analyze.warmup import label_warmup
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.errors import MeasureError, Unsteady
from sfbench.common.schema import LaunchRecord
from sfbench.gating.gate_report import ArmName, SlotValue


def slot_value(arm: ArmName, pair: int, measured: MeasuredLaunch) -> SlotValue:
    """Medians over blocks after warmup of a launch that was ok.

    Raises:
        Unsteady: no steady state.
        MeasureError: no train step.
    """
    frame = step_frame([measured])
    labelled = label_warmup(frame, job_steps(frame))
    if labelled.unsteady:
        raise Unsteady(
            f"{arm}: a launch never came to a steady state. Free the machine of other work, or "
            "give each launch more --seconds"
        )
    point = measure_point([measured], labelled.steps, labelled.job, ladder=True)
    if point is None or measured.record is None:
        raise MeasureError(f"{arm}: no train step was measured. Give each launch more --seconds")
    return SlotValue(
        arm=arm,
        pair=pair,
        samples_per_s=_median(point.rate.launches[0].blocks),
        cached_samples_per_s=_median(point.cached.launches[0].blocks) if point.cached else None,
        solo_samples_per_s=_solo(point),
        fetch_s_per_sample=_fetch(measured.record),
    )


def _median(values: Iterable[float]) -> float:
    return float(np.median(np.fromiter(values, dtype=np.float64)))


def _solo(point: MeasuredPoint) -> float | None:
    """One device's samples/s by itself; None unless every rank had a turn alone."""
    if any(rank.solo_step_s is None for rank in point.ranks):
        return None
    step_s = np.mean([rank.solo_step_s for rank in point.ranks])
    return point.samples_per_step / point.devices / float(step_s)


def _fetch(record: LaunchRecord) -> float | None:
    """Seconds that one loader worker takes for a sample; None if none could be watched."""
    loads = [load for load in record.loads if load.fetch_batches]
    if not loads or record.loop.batch_per_fetch <= 0:
        return None
    return float(np.mean([load.fetch_s for load in loads])) / record.loop.batch_per_fetch
