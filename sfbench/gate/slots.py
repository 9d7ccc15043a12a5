"""One launch of one side becomes one value per figure. Frame in, value out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfbench.analyze.measured import MeasuredPoint, measure_point
from sfbench.analyze.rates import job_rate
from sfbench.analyze.steps import job_steps, ordinary
from sfbench.analyze.warmup import label_warmup
from sfbench.collect.frames import step_frame
from sfbench.collect.model import MeasuredLaunch
from sfbench.errors import MeasureError, UsageError
from sfbench.gate.arms import ArmName
from sfbench.gate.model import SlotValue
from sfbench.schema import ModuleFile, Share


def slot_value(arm: ArmName, pair: int, measured: MeasuredLaunch) -> SlotValue:
    """Medians over blocks after warmup of a launch that was ok.

    Raises:
        MeasureError: no train step, or no steady state: such a launch gives no number.
    """
    frame = step_frame([measured])
    labelled = label_warmup(frame, job_steps(frame))
    point = measure_point([measured], labelled.steps, labelled.job, ladder=True)
    if point is None or labelled.unsteady:
        raise MeasureError(f"{arm}: the launch of pair {pair + 1} never came to a steady state")
    kept = ordinary(labelled.job)
    cached = kept[(kept["rung"] == "cached").to_numpy()]
    return SlotValue(
        arm=arm,
        pair=pair,
        samples_per_s=_median(point.rate.launches[0].blocks),
        cached_samples_per_s=_median(job_rate(cached).launches[0].blocks) if len(cached) else None,
        solo_samples_per_s=_solo(point),
        data_share=_share(point, "data"),
        communication_share=_share(point, "communication"),
        fetch_s_per_sample=_fetch(measured),
    )


def check_code(arm: ArmName, measured: MeasuredLaunch) -> None:
    """Refuse a launch that did not run the checkout it was told to.

    Raises:
        UsageError: a module came from the person's own working tree, or none from the checkout.
    """
    modules = measured.record.modules if measured.record is not None else ()
    foreign = [module.path for module in modules if module.foreign]
    if foreign:
        raise UsageError(
            f"{arm}: {foreign[0]} was imported from the working tree instead of the checkout that "
            "is measured (an editable install pins it there). Put the source folder on PYTHONPATH "
            "instead, relative to the repository."
        )
    if not modules:
        raise UsageError(f"{arm}: no module came from the checkout: what was run is not in it")


def check_different(base: Sequence[ModuleFile], candidate: Sequence[ModuleFile]) -> None:
    """Refuse two sides that imported the same code.

    Raises:
        UsageError: every module file is the same on both sides.
    """
    if {(m.path, m.sha256) for m in base} == {(m.path, m.sha256) for m in candidate}:
        raise UsageError(
            f"both sides ran the same code ({len(base)} module files are identical): the change is "
            "not in what the script imports, so there is nothing to measure. Use --paths to skip "
            "the gate for such changes, or `sfbench gate calibrate` for an A/A comparison."
        )


def _median(values: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(np.median(np.asarray(values, dtype=np.float64)))


def _solo(point: MeasuredPoint) -> float | None:
    steps = [r.solo_step_s for r in point.ranks if r.solo_step_s is not None]
    if not steps:
        return None
    return point.samples_per_step / point.devices / float(np.mean(steps))


def _share(point: MeasuredPoint, name: str) -> float | None:
    if point.shares is None:
        return None
    share: Share = getattr(point.shares.time_share, name)
    return share.value


def _fetch(measured: MeasuredLaunch) -> float | None:
    record = measured.record
    if record is None:
        return None
    loads = [load for load in record.loads if load.fetch_batches]
    batch = record.loop.batch_per_fetch
    if not loads or batch <= 0:
        return None
    return float(np.mean([load.fetch_s for load in loads])) / batch
