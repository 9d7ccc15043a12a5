"""small-batch: what a step costs whatever the batch is a large part of it.

Rule: T(b) = A + C b from cached batches cut to half and joined to double, at 1 device, in solo
steps. The share of A in the compute part of the step is what a batch without end would give back;
b / (b + A / C) of the time goes to samples, 90 % from 9 A / C on. Where each device's batch is the
same at all counts this loses nothing against one device, and is said once, at 1 device; where a
global batch is divided, each count gets its own.

Disproved where samples/s at twice the batch does not rise as predicted: run it.
"""

from __future__ import annotations

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
GOOD_SHARE = 0.9
"""Part of the time on samples that a batch of 9 A / C reaches."""
DISPROOF = "not the batch if samples_per_s_at_double_batch is not reached when it is tried"


def diagnose_small_batch(case: Case, curve: BatchCurve | None) -> Diagnosis | None:
    """Judge the fixed cost; ``curve`` is that of the point at 1 device."""
    batch = case.point.batch_per_device
    if curve is None or curve.misfit > MAX_MISFIT or batch is None or _same_as_one(case, batch):
        return None
    share = _fixed_share(case.share(COMPUTE), curve, batch)
    judged = judge(share)
    if judged is None:
        return None
    at_one = case.share_at_one(COMPUTE)
    there = _fixed_share(at_one, curve, curve.batch) if at_one is not None else None
    return Diagnosis(
        id=ID,
        devices=case.devices,
        severity=judged.severity,
        rank=None,
        regain=against_one(share, there, case.point),
        evidence=_evidence(case, curve, share, judged),
        advice=_advice(case, curve, share),
    )


def _same_as_one(case: Case, batch: float) -> bool:
    if case.one is None or case.one.batch_per_device is None:
        return False
    return abs(batch / case.one.batch_per_device - 1) <= SAME_BATCH


def _fixed_share(compute: Share, curve: BatchCurve, batch: float) -> Share:
    """A / T(batch) of the compute share; its interval scales that of the curve, and is no narrower
    than a time share's."""
    if compute.value is None:
        return Share(reason=compute.reason)
    # Relative to the fit at the measured batch, what the interval says of A stays the same.
    scale = compute.value * curve.step_s(curve.batch) / curve.step_s(batch)
    share = curve.fixed_share
    scaled = Interval(
        value=max(0.0, share.value * scale),
        low=None if share.low is None else share.low * scale,
        high=None if share.high is None else share.high * scale,
    )
    known = widened(scaled, SYSTEMATIC)
    return Share(value=known.value, low=known.low, high=known.high)


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
    """Device memory at larger batches, a line through those measured; nothing where unknown."""
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
    """9 A / C; None where samples seem to cost nothing."""
    if curve.sample_s.value <= 0:
        return None
    return GOOD_SHARE / (1 - GOOD_SHARE) * curve.fixed_s.value / curve.sample_s.value


def _advice(case: Case, curve: BatchCurve, share: Share) -> tuple[str, ...]:
    batch = case.point.batch_per_device
    assert batch is not None
    assert share.value is not None
    gain = curve.samples_per_s(2 * batch) / curve.samples_per_s(batch)
    enough = _batch_for_good(curve)
    where = f"; {units.count(round(enough))} spend 90 % of the time on samples" if enough else ""
    return (
        f"Try {units.count(2 * batch)} samples per device and step (now {units.count(batch)}): "
        f"{units.rate(curve.samples_per_s(2 * batch))} instead of "
        f"{units.rate(curve.samples_per_s(batch))} samples/s per device "
        f"({units.change(Interval(value=gain, low=None, high=None))}){where}.",
        *_memory_advice(case),
        "A larger batch changes training: scale the learning rate with it (linearly for SGD, with "
        "warmup; about by the square root for Adam) and check that the loss still gets there.",
        f"Or make the fixed {units.seconds(curve.fixed_s.value)} per step smaller: fused or "
        "foreach optimizer, torch.compile, CUDA graphs, fewer host synchronisations.",
    )
