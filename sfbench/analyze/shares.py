"""Where the step time goes, by the ladder of rungs.

With T the job's seconds per step, c_r the unsynced and s_r the solo step of rank r, and "others"
the ranks that are not slow (all, where none is):

    compute        mean over others of s_r
    host           mean over others of (c_r - s_r)
    straggler      c_slow - mean over others of c_r
    jitter         E_i max_r c_ri - c_slow      (- mean over all of c_r, where none is slow)
    communication  T_cached - E_i max_r c_ri
    data           T_train - T_cached

Each is taken cycle by cycle, so that the machine's drift cancels, and they sum to T_train.

Where E_i max_r c_ri is above T_cached beyond noise, ranks take turns on too few cores: apart, their
steps fluctuate more than the job can lose together, since a step of the job is never shorter than
its slowest rank. It is then bounded by T_cached: communication is 0, and jitter what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sfbench.analyze.cycles import Cycles, filled_solo
from sfbench.analyze.intervals import Array, Spread, mean_interval, spread, widened
from sfbench.analyze.slow import MIN_CYCLES, Picked, pick_slow
from sfbench.schema import Interval, Rung, Share, TimeShare

SYSTEMATIC = 0.005
"""What every half-width takes in, as a ratio of the step.

Blocks that agree with each other can be wrong alike: by the probe's own work, of which its budget
allows so much of a step of 10 ms, and by what a rung does to caches and queues.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """A rank that is slower than the others, cycle after cycle."""

    rank: int
    excess_s: Interval
    """Seconds per step above the mean of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The parts of one point's step."""

    time_share: TimeShare
    """As ratios of the step; they sum to 1 where all were measured."""
    seconds: TimeShare
    """The same in seconds per step."""
    step_s: float
    """Mean of T_train over the cycles."""
    cycles: int
    slow: SlowRank | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """One part, cycle by cycle in seconds; None with the reason where it is not known."""

    values: Array | None
    reason: str | None = None
    noise: Array | None = None
    """What the interval is made of, where that is not ``values``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ranks:
    """What the unsynced and solo rungs say, cycle by cycle in seconds."""

    picked: Picked | None
    others_s: _Part
    """Mean over others of c_r."""
    solo_s: _Part
    """Mean over others of s_r."""
    straggler: _Part
    jitter: _Part


def time_shares(cycles: Cycles, unavailable: Mapping[Rung, str]) -> Shares | None:
    """Compute the shares with their intervals; None where no cycle has a train block.

    ``unavailable``: rung -> why it could not run. Intervals are Student's t over cycles (over
    launches where there are many, and they differ) on what a cycle's part differs from
    share * T_train, a ratio estimate, and hold ``SYSTEMATIC`` as an independent error. A part that
    needs a rung that did not run has value None and the reason.
    """
    used = _bounded(_complete(cycles))
    if not len(used.train_s):
        return None
    ranks = _ranks(used, unavailable)
    cached = _rung(used.cached_s, "cached", unavailable)
    slowest = _rung(used.slowest_s, "unsynced", unavailable)
    train = _Part(values=used.train_s)
    parts = {
        "compute": ranks.solo_s,
        "host": _minus(ranks.others_s, ranks.solo_s),
        "straggler": ranks.straggler,
        "jitter": ranks.jitter,
        "communication": _minus(cached, slowest),
        "data": _minus(train, cached),
    }
    return Shares(
        time_share=TimeShare(**{name: _ratio(part, used) for name, part in parts.items()}),
        seconds=TimeShare(**{name: _seconds(part, used) for name, part in parts.items()}),
        step_s=float(used.train_s.mean()),
        cycles=len(used.train_s),
        slow=_slow_rank(ranks.picked, used),
    )


def _complete(cycles: Cycles) -> Cycles:
    """Cycles with a block of train and of every other rung that ran at all."""
    keep = np.isfinite(cycles.train_s)
    for values in (cycles.cached_s, cycles.slowest_s):
        keep &= np.isfinite(values) | ~np.isfinite(values).any()
    for table in (cycles.unsynced_s, cycles.solo_s):
        keep &= np.isfinite(table).any(axis=1) | ~np.isfinite(table).any()
    return Cycles(
        launch=cycles.launch[keep],
        train_s=cycles.train_s[keep],
        cached_s=cycles.cached_s[keep],
        slowest_s=cycles.slowest_s[keep],
        unsynced_s=cycles.unsynced_s[keep],
        solo_s=cycles.solo_s[keep],
        batches_s=cycles.batches_s,
    )


def _bounded(used: Cycles) -> Cycles:
    """The slowest rank's step bounded by the job's, where it is above it beyond noise."""
    over = used.slowest_s - used.cached_s
    if not len(over) or not np.isfinite(over).all():
        return used
    interval = mean_interval(float(over.mean()), _spread(over, used))
    if interval.low is None or interval.low <= 0:
        return used
    return replace(used, slowest_s=used.slowest_s - interval.value)


def _rung(values: Array, rung: Rung, unavailable: Mapping[Rung, str]) -> _Part:
    if np.isfinite(values).all():
        return _Part(values=values)
    reason = unavailable.get(rung, "gave no measured step in steady state")
    return _Part(values=None, reason=f"rung {rung}: {reason}")


def _ranks(used: Cycles, unavailable: Mapping[Rung, str]) -> _Ranks:
    unsynced = _rung(used.unsynced_s, "unsynced", unavailable)
    solo = _rung(filled_solo(used), "solo", unavailable)
    count = used.unsynced_s.shape[1]
    everyone = np.ones_like(used.unsynced_s, dtype=bool)
    if unsynced.values is None:
        return _Ranks(
            picked=None,
            others_s=unsynced,
            solo_s=_mean_over(solo, everyone),
            straggler=unsynced,
            jitter=unsynced,
        )
    if count > 1 and len(used.train_s) < MIN_CYCLES:
        few = f"{len(used.train_s)} cycles were measured, {MIN_CYCLES} tell a slow rank"
        unknown = _Part(values=None, reason=few)
        return _Ranks(
            picked=None, others_s=unknown, solo_s=unknown, straggler=unknown, jitter=unknown
        )
    picked = pick_slow(unsynced.values, used.batches_s) if count > 1 else None
    others = everyone.copy()
    straggler = _straggler(picked, len(used.train_s))
    if picked is not None and picked.rank is not None:
        others[np.arange(len(others)), picked.slow] = False
    others_s = _mean_over(unsynced, others)
    return _Ranks(
        picked=picked,
        others_s=others_s,
        solo_s=_mean_over(solo, others),
        straggler=straggler,
        jitter=_minus(_minus(_Part(values=used.slowest_s), others_s), straggler),
    )


def _straggler(picked: Picked | None, cycles: int) -> _Part:
    """The slow rank's excess; 0 where none is above noise, but known no better than the noise."""
    if picked is None:
        return _Part(values=np.zeros(cycles))
    if picked.rank is None:
        return _Part(values=np.zeros(cycles), noise=picked.excess_s)
    return _Part(values=picked.excess_s)


def _mean_over(part: _Part, ranks: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> _Part:
    if part.values is None:
        return part
    return _Part(values=np.where(ranks, part.values, 0.0).sum(axis=1) / ranks.sum(axis=1))


def _minus(left: _Part, right: _Part) -> _Part:
    if left.values is None:
        return left
    if right.values is None:
        return right
    return _Part(values=left.values - right.values)


def _ratio(part: _Part, used: Cycles) -> Share:
    if part.values is None:
        return Share(reason=part.reason)
    step_s = float(used.train_s.mean())
    share = float(part.values.mean()) / step_s
    noise = part.values if part.noise is None else part.noise
    sampled = _spread((noise - share * used.train_s) / step_s, used)
    return _share(share, sampled, _systematic(noise))


def _seconds(part: _Part, used: Cycles) -> Share:
    if part.values is None:
        return Share(reason=part.reason)
    noise = part.values if part.noise is None else part.noise
    systematic_s = _systematic(noise) * float(used.train_s.mean())
    return _share(float(part.values.mean()), _spread(noise, used), systematic_s)


def _systematic(noise: Array) -> float:
    """None for what cannot be at all, as a straggler of one device."""
    return SYSTEMATIC if noise.any() else 0.0


def _share(value: float, spread: Spread | None, systematic: float) -> Share:
    interval = widened(mean_interval(value, spread), systematic)
    return Share(value=interval.value, low=interval.low, high=interval.high)


def _spread(values: Array, used: Cycles) -> Spread | None:
    # Drift cancels within a cycle, so that few launches may be pooled.
    return spread([values[used.launch == launch] for launch in np.unique(used.launch)], None)


def _slow_rank(picked: Picked | None, used: Cycles) -> SlowRank | None:
    if picked is None or picked.rank is None:
        return None
    excess = mean_interval(float(picked.excess_s.mean()), _spread(picked.excess_s, used))
    return SlowRank(rank=picked.rank, excess_s=excess)
