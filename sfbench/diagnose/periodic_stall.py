"""periodic-stall: a rank stops between ordinary steps, again and again, and the others wait.

Rule: a rank's own time from an update to its next fetch or forward is many times what it usually
is, every so many steps or at one line of the script (see ``sfbench.analyze.stalls``). It is told on
every rung, whoever waits: nobody waits in a rank's own time. Evaluation and saving stand outside of
the step, and are told of the wall time instead.

Disproved if the job takes as long per step with that line taken out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sfbench.analyze.parts import Part
from sfbench.analyze.stalls import OUTSIDE
from sfbench.common import units
from sfbench.common.schema import Diagnosis, Interval, Stall
from sfbench.diagnose.case import Case
from sfbench.diagnose.numbers import Evidence, common, rounded
from sfbench.diagnose.recoverable import regain
from sfbench.diagnose.severity import Judgement, judge

ID = "periodic-stall"
DISPROOF = "not this stall if the job takes as long per step with that line taken out"

_ONCE = (
    "Each launch was just long enough for one of them, always at the same step: it may as well "
    "come once per start. Fewer and longer launches tell (--rounds 2 --seconds 60)."
)

_ADVICE = {
    "evaluation": (
        "Let every rank evaluate its share (DistributedSampler) and add up the sums with "
        "all_reduce, or evaluate more rarely."
    ),
    "saving": (
        "Save in the background (torch.distributed.checkpoint.async_save, or a thread that writes "
        "a copy in memory), or more rarely."
    ),
    "epoch-start": (
        "Set persistent_workers=True, and keep what is made anew at each epoch (iterators, "
        "samplers, datasets) over epochs."
    ),
    "collection": (
        "Call gc.freeze() after setting up, and gc.disable() while training; if memory grows, "
        "collect at the same step on all ranks."
    ),
    "other": "Do it more rarely, or in a thread, or on all ranks at the same step.",
}


def diagnose_periodic_stall(case: Case, part: Part, judged: Judgement) -> Diagnosis | None:
    """Judge the ``stalls`` share; applies at 1 device as well."""
    found = [stall for stall in case.point.stalls if stall.kind not in OUTSIDE]
    if not found:
        return None
    largest = max(found, key=lambda stall: stall.per_step_s.value)
    return Diagnosis(
        id=ID,
        devices=case.devices,
        severity=judged.severity,
        rank=largest.rank,
        regain=regain(case, part),
        evidence={
            **common(case, part, judged),
            **_evidence(case, largest),
            "stalls_found": len(found),
            "disproof": DISPROOF,
        },
        advice=_advice(case, largest),
    )


def diagnose_outside(case: Case) -> Iterator[Diagnosis]:
    """Evaluation and saving, if they take enough of the wall time."""
    for stall in case.point.stalls:
        share = _of_wall(case, stall)
        judged = judge(share)
        if stall.kind not in OUTSIDE or judged is None:
            continue
        alone = stall.rank is not None
        idle = 1 - 1 / case.devices if alone else 0.0
        yield Diagnosis(
            id=ID,
            devices=case.devices,
            severity=judged.severity if alone else "info",
            rank=stall.rank,
            regain=_times(share, idle),
            evidence={
                "verdict": judged.verdict,
                "share_of_wall_time": rounded(share.value),
                **_evidence(case, stall),
                "disproof": DISPROOF,
            },
            advice=_advice(case, stall),
        )


def _of_wall(case: Case, stall: Stall) -> Interval:
    """Of a step and all that stands beside it: known no better than these are."""
    others = [s.per_step_s for s in case.point.stalls if s.kind in OUTSIDE and s is not stall]
    beside = [case.point.step_s or Interval(value=case.step_s, low=None, high=None), *others]
    own, rest_s = stall.per_step_s, sum(one.value for one in beside)
    share = own.value / (own.value + rest_s)
    if own.low is None or own.high is None or any(one.low is None for one in beside):
        return Interval(value=share, low=None, high=None)
    longer_s = math.hypot(*((one.high or one.value) - one.value for one in beside))
    shorter_s = min(rest_s, math.hypot(*(one.value - (one.low or 0.0) for one in beside)))
    low = (own.low / (own.low + rest_s), own.value / (own.value + rest_s + longer_s))
    high = (own.high / (own.high + rest_s), own.value / (own.value + rest_s - shorter_s))
    below, above = (math.hypot(*(end - share for end in ends)) for ends in (low, high))
    return Interval(value=share, low=max(0.0, share - below), high=min(1.0, share + above))


def _times(interval: Interval, factor: float) -> Interval:
    low, high = interval.low, interval.high
    return Interval(
        value=interval.value * factor,
        low=None if low is None else low * factor,
        high=None if high is None else high * factor,
    )


def _evidence(case: Case, stall: Stall) -> Evidence:
    return {
        "kind": stall.kind,
        "outside_the_step": stall.kind in OUTSIDE,
        "line": stall.line or None,
        "per": stall.per,
        "period_steps": stall.period_steps,
        "period_is_sure": stall.sure,
        "times_seen": stall.times,
        "stall_s": rounded(stall.size_s.value),
        "stall_s_per_step": rounded(stall.per_step_s.value),
        "ranks_that_wait": case.devices - 1 if stall.rank is not None else 0,
    }


def _advice(case: Case, stall: Stall) -> tuple[str, ...]:
    who = "Every rank" if case.devices > 1 else "The script"
    who = who if stall.rank is None else f"Rank {stall.rank}"
    how_often = {
        "steps": f"every {stall.period_steps} steps",
        "epoch": f"in each epoch of {stall.period_steps} steps",
        "irregular": "now and then",
    }[stall.per]
    at = f" at {stall.line}" if stall.line else ""
    waiting = case.devices - 1
    others = ""
    if stall.rank is not None and waiting:
        others = f", and {waiting} other rank{'s wait' if waiting > 1 else ' waits'}"
    verb = {"evaluation": "evaluates", "saving": "saves"}.get(stall.kind, "stops")
    return (
        f"{who} {verb} for {units.seconds(stall.size_s.value)} {how_often}{at}{others}.",
        *([_ONCE] if not stall.sure else []),
        _ADVICE[stall.kind],
    )
