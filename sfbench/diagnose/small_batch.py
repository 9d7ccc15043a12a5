"""small-batch: what a step costs whatever the batch is a large part of it.

Rule: T(b) = A + C b from cached batches cut to half and joined to double, at 1 device, in solo
steps. The share of A in the compute part of the step is what a batch without end would give back;
b / (b + A / C) of the time goes to samples, 90 % from 9 A / C on. If each device's batch is the
same at all counts, or a step has fewer micro-batches of the same size, this loses nothing against
one device, and is said once, at 1 device; if a global batch is divided, each count gets its own.

Disproved if samples/s at twice the batch does not rise as predicted: run it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from sfbench.analyze.batch_curve import BatchCurve
from sfbench.analyze.intervals import widened
from sfbench.analyze.losses import against_one
from sfbench.analyze.parts import COMPUTE
from sfbench.analyze.shares import SYSTEMATIC
from sfbench.common import units
from sfbench.common.schema import Diagnosis, Interval, Share
from sfbench.diagnose.case import Case
from sfbench.diagnose.numbers import Evidence, rounded
from sfbench.diagnose.severity import Judgement, judge

ID = "small-batch"
SAME_BATCH = 0.01
"""Batches per device that differ by no more than this ratio are the same."""
MAX_MISFIT = 0.1
"""Distance of a measured size from the line, as a ratio, beyond which the line says nothing."""
ACCUMULATES = 1.5
"""From so many micro-batches per step on, larger ones change nothing of training."""
GOOD_SHARE = 0.9
"""Part of the time on samples that a batch of 9 A / C reaches."""
UNKNOWN_COMPUTE = "how much of the step is computing is not known"
DISPROOF = "not the batch if samples_per_s_at_double_batch is not reached when it is tried"


def diagnose_small_batch(case: Case, curve: BatchCurve | None) -> Diagnosis | None:
    """Judge the fixed cost; ``curve`` is that of the point at 1 device."""
    batch = case.point.batch_per_device
    if curve is None or curve.misfit > MAX_MISFIT or batch is None:
        return None
    here = _here(case, curve, batch)
    if case.one is not None and _same_as_one(curve, here, batch):
        return None
    share = _fixed_share(case.share(COMPUTE), curve, here, batch)
    judged = judge(share)
    if judged is None:
        return None
    at_one = case.share_at_one(COMPUTE)
    there = None if at_one is None else _fixed_share(at_one, curve, curve, curve.batch)
    return Diagnosis(
        id=ID,
        devices=case.devices,
        severity=judged.severity,
        rank=None,
        regain=against_one(share, there, case.point),
        evidence=_evidence(case, here, share, judged),
        advice=_advice(case, here),
    )


def _here(case: Case, curve: BatchCurve, batch: float) -> BatchCurve:
    """The curve of this point: a step of fewer micro-batches has less fixed cost.

    What comes with each micro-batch comes as often as there are micro-batches, what comes once per
    update stays. How much of A is which, the solo steps tell: A_N = T_N - C b, which lies between A
    and A times the micro-batches here over those at 1 device. It is the latter if noise may
    explain the difference.
    """
    micro, share = _micro_batches(case), curve.fixed_share.value
    if abs(micro - 1) <= SAME_BATCH or share <= 0:
        return curve
    found, ratio = micro * share, _solo_ratio(case)
    samples = (1 - share) * batch / curve.batch
    if ratio is not None and ratio.low is not None and ratio.low - samples > found:
        found = min(ratio.value - samples, max(share, found))
    return replace(curve, fixed_s=_scaled(curve.fixed_s, found / share))


def _micro_batches(case: Case) -> float:
    """Of a step here over those of one at 1 device."""
    if case.one is None or case.one.loop is None or not case.one.loop.fetches_per_step:
        return 1.0
    return case.loop.fetches_per_step / case.one.loop.fetches_per_step


def _solo_ratio(case: Case) -> Interval | None:
    """A solo step here over one at 1 device."""
    here, at_one = case.share(COMPUTE), case.share_at_one(COMPUTE)
    step_s, there_s = case.point.step_s, case.one.step_s if case.one is not None else None
    if at_one is None or step_s is None or there_s is None or not (here.value and at_one.value):
        return None
    value = here.value * step_s.value / (at_one.value * there_s.value)
    errors = [_relative(one) for one in (here, at_one, step_s, there_s)]
    if None in errors:
        return Interval(value=value, low=None, high=None)
    error = value * math.hypot(*(one or 0.0 for one in errors))
    return Interval(value=value, low=value - error, high=value + error)


def _relative(known: Share | Interval) -> float | None:
    half = units.half_width(known)
    return half / known.value if half is not None and known.value else None


def _same_as_one(curve: BatchCurve, here: BatchCurve, batch: float) -> bool:
    """Whether a sample's part of the fixed cost is what it is at 1 device."""
    there = curve.fixed_s.value * batch / curve.batch
    return abs(here.fixed_s.value - there) <= SAME_BATCH * abs(there)


def _scaled(interval: Interval, factor: float) -> Interval:
    return Interval(
        value=interval.value * factor,
        low=None if interval.low is None else interval.low * factor,
        high=None if interval.high is None else interval.high * factor,
    )


def _fixed_share(compute: Share, curve: BatchCurve, here: BatchCurve, batch: float) -> Share:
    """A / T(batch) of the compute share; its interval joins those of the curve and of that share,
    and is no narrower than a time share's. Nothing if the compute share is no figure."""
    if compute.value is None or not units.is_known(compute):
        return Share(reason=compute.reason or UNKNOWN_COMPUTE)
    # Relative to the fit at the measured batch, what the interval says of A stays the same.
    fixed = here.fixed_s.value / curve.fixed_s.value if curve.fixed_s.value else 1.0
    scale = fixed * compute.value * curve.step_s(curve.batch) / here.step_s(batch)
    scaled = _scaled(curve.fixed_share, scale)
    known = widened(replace(scaled, value=max(0.0, scaled.value)), SYSTEMATIC)
    if known.low is None or known.high is None:
        return Share(value=known.value, low=None, high=None)
    own = known.value * (_relative(compute) or 0.0)
    return Share(
        value=known.value,
        low=known.value - math.hypot(known.value - known.low, own),
        high=known.value + math.hypot(known.high - known.value, own),
    )


def _evidence(case: Case, curve: BatchCurve, share: Share, judged: Judgement) -> Evidence:
    batch = case.point.batch_per_device
    assert batch is not None
    return {
        "verdict": judged.verdict,
        "share_of_step": rounded(share.value),
        "share_half_width": rounded(units.half_width(share)),
        "seconds_per_step": rounded(curve.fixed_s.value),
        "step_s": rounded(case.step_s),
        "batch_per_device": rounded(batch),
        "fixed_s_per_step": rounded(curve.fixed_s.value),
        "s_per_sample": rounded(curve.sample_s.value),
        "samples_per_s_at_batch": rounded(curve.samples_per_s(batch)),
        "samples_per_s_at_double_batch": rounded(curve.samples_per_s(2 * batch)),
        "samples_per_s_at_4_times_batch": rounded(curve.samples_per_s(4 * batch)),
        "batch_for_90_percent": rounded(_batch_for_good(curve)),
        **_memory(case),
        "measured_batches": ", ".join(f"{size:g}" for size in curve.sizes),
        "misfit_ratio": rounded(curve.misfit),
        "disproof": DISPROOF,
    }


def _memory(case: Case) -> Evidence:
    """Device memory at larger batches, a line through those measured; nothing if unknown."""
    peaks = {one.rung: max(one.peak_bytes, 0) for load in case.loads() for one in load.rungs}
    once, twice = peaks.get("solo", 0), peaks.get("double", 0)
    if not once or not twice:
        return {}
    return {
        "memory_bytes_at_batch": once,
        "memory_bytes_at_double_batch": twice,
        "memory_bytes_at_4_times_batch": once + 3 * max(0, twice - once),
        "device_memory_bytes": case.infos[0].memory_bytes,
    }


def _memory_advice(case: Case) -> tuple[str, ...]:
    found = _memory(case)
    if not found:
        return ()
    twice, four, there = (
        units.bytes_(float(found[name] or 0))
        for name in (
            "memory_bytes_at_double_batch",
            "memory_bytes_at_4_times_batch",
            "device_memory_bytes",
        )
    )
    return (f"Twice the batch took {twice} of the device's {there}; four times would take {four}.",)


def _batch_for_good(curve: BatchCurve) -> float | None:
    """9 A / C; None if samples seem to cost nothing."""
    if curve.sample_s.value <= 0:
        return None
    return GOOD_SHARE / (1 - GOOD_SHARE) * curve.fixed_s.value / curve.sample_s.value


def _advice(case: Case, curve: BatchCurve) -> tuple[str, ...]:
    batch, micro = case.point.batch_per_device, case.loop.fetches_per_step
    assert batch is not None
    if micro >= ACCUMULATES:
        return (
            f"Try micro-batches of {units.count(round(2 * batch / micro))} samples (now "
            f"{units.count(round(batch / micro))}) and half as many of them: at best "
            f"{_gain(curve, batch)}. The update's batch stays as it is, and so does training.",
            *_memory_advice(case),
            _fixed_advice(curve),
        )
    enough = _batch_for_good(curve)
    where = (
        f"; with {units.count(round(enough))} a step spends 90 % of its time on samples"
        if enough
        else ""
    )
    return (
        f"Try {units.count(2 * batch)} samples per device and step (now {units.count(batch)}): "
        f"{_gain(curve, batch)}{where}.",
        *_memory_advice(case),
        "A larger batch changes training: scale the learning rate with it (linearly for SGD, with "
        "warmup; about by the square root for Adam) and check that the loss still gets there.",
        _fixed_advice(curve),
    )


def _gain(curve: BatchCurve, batch: float) -> str:
    gain = curve.samples_per_s(2 * batch) / curve.samples_per_s(batch)
    return (
        f"{units.rate(curve.samples_per_s(2 * batch))} instead of "
        f"{units.rate(curve.samples_per_s(batch))} samples/s per device "
        f"({units.expected_change(gain)})"
    )


def _fixed_advice(curve: BatchCurve) -> str:
    return (
        f"Or make the fixed {units.seconds(curve.fixed_s.value)} per step smaller: fused or "
        "foreach optimizer, torch.compile, CUDA graphs, fewer host synchronisations."
    )
