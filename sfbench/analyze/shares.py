"""Where the step time goes, by the ladder of rungs.

With T the job's seconds per step, c_r the unsynced and s_r the solo step of rank r, and "others"
the ranks that are not slow (all, if none is):

    compute        mean over others of s_r
    host           mean over others of (c_r - s_r)
    straggler      c_slow - mean over others of c_r
    jitter         E_i max_r c_ri - c_slow      (- mean over all of c_r, if none is slow)
    communication  T_cached - E_i max_r c_ri
    data           T_train - T_cached
    stalls         time between steps, over the steps from one stall to the next

Each is taken cycle by cycle, so that the machine's drift cancels, and they sum to T_train with
stalls; all other terms are of steps without them (see ``sfbench.analyze.stalls``).

If E_i max_r c_ri is above T_cached beyond noise, ranks take turns on too few cores: apart, their
steps fluctuate more than the job can lose together, since a step of the job is never shorter than
its slowest rank. It is then bounded by T_cached: communication is 0, and jitter what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sfbench.analyze.cycles import Cycles
from sfbench.analyze.intervals import Array, Spread, mean_interval, spread, widened
from sfbench.analyze.parts import DATA, PARTS, Part
from sfbench.analyze.quantities import NO_STALLS, Quantity, quantities
from sfbench.analyze.slow import Picked
from sfbench.common.schema import Interval, Rung, Share, TimeShare

SYSTEMATIC = 0.005
"""What every half-width takes in, as a ratio of the step.

Blocks that agree with each other can be wrong alike: by the probe's own work, of which its budget
allows so much of a step of 10 ms, and by what a rung does to caches and queues.
"""

SAMPLED = frozenset({"train", "solo"})
"""Terms that compare the kept batches with all others, if a part has one of them."""


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
    """As ratios of the step; they sum to 1 if all were measured."""
    seconds: TimeShare
    """The same in seconds per step."""
    step_s: float
    """Mean of T_train over the cycles."""
    cycles: int
    slow: SlowRank | None


def time_shares(
    cycles: Cycles, unavailable: Mapping[Rung, str], stalls_s: Interval = NO_STALLS
) -> Shares | None:
    """Compute the shares with their intervals; None if no cycle has a train block.

    ``unavailable``: rung -> why it could not run. ``stalls_s``: what stalls cost each step of the
    job, which the steps of the cycles do not hold. Intervals are Student's t over cycles (over
    launches if there are many, and they differ) on what a cycle's part differs from
    share * T_train, a ratio estimate, and hold ``SYSTEMATIC`` as an independent error. A part that
    needs a rung that did not run has value None and the reason.
    """
    used = _bounded(_complete(cycles))
    if not len(used.train_s):
        return None
    known = quantities(used, unavailable, stalls_s)
    step_s = float(used.train_s.mean()) + stalls_s.value
    ratios, seconds = {}, {}
    for part in PARTS:
        found = known.part(part.terms)
        unknown = Share(reason=known.reason(part.rungs))
        ratios[part.id] = seconds[part.id] = unknown
        if found is not None:
            ratios[part.id] = _of_all_batches(
                _ratio(found, used, stalls_s.value), part, used, step_s
            )
            seconds[part.id] = _of_all_batches(_seconds(found, used), part, used, 1.0)
    return Shares(
        time_share=TimeShare(**ratios),
        seconds=TimeShare(**seconds),
        step_s=step_s,
        cycles=len(used.train_s),
        slow=_slow_rank(known.picked, used),
    )


def _of_all_batches(share: Share, part: Part, used: Cycles, step_s: float) -> Share:
    """With the sampling error of the kept batches, in what compares them with others.

    Loading is measured twice, by the rungs and by the wait for batches: if batches are of unlike
    length its interval takes in both.
    """
    if not SAMPLED.isdisjoint(part.terms) and used.ring_error_s:
        share = _widened(share, used.ring_error_s / step_s)
    if part.id != DATA.id or used.wait_s is None or share.low is None or share.high is None:
        return share
    wait = used.wait_s / step_s
    return replace(share, low=min(share.low, wait), high=max(share.high, wait))


def _complete(cycles: Cycles) -> Cycles:
    """Cycles with a block of train and of every other rung that ran at all."""
    keep = np.isfinite(cycles.train_s)
    for values in (cycles.cached_s, cycles.slowest_s):
        keep &= np.isfinite(values) | ~np.isfinite(values).any()
    for table in (cycles.unsynced_s, cycles.solo_s):
        keep &= np.isfinite(table).any(axis=1) | ~np.isfinite(table).any()
    return replace(
        cycles,
        launch=cycles.launch[keep],
        train_s=cycles.train_s[keep],
        cached_s=cycles.cached_s[keep],
        slowest_s=cycles.slowest_s[keep],
        unsynced_s=cycles.unsynced_s[keep],
        solo_s=cycles.solo_s[keep],
    )


def _bounded(used: Cycles) -> Cycles:
    """The slowest rank's step bounded by the job's, if it is above it beyond noise."""
    over = used.slowest_s - used.cached_s
    if not len(over) or not np.isfinite(over).all():
        return used
    interval = mean_interval(float(over.mean()), _spread(over, used))
    if interval.low is None or interval.low <= 0:
        return used
    return replace(used, slowest_s=used.slowest_s - interval.value)


def _ratio(part: Quantity, used: Cycles, stalls_s: float) -> Share:
    step_s = float(used.train_s.mean()) + stalls_s
    share = float(part.values.mean()) / step_s
    if part.half_width_s is not None:
        return _of_stalls(part.half_width_s, share, used, step_s)
    noise = part.noise
    sampled = _spread((noise - share * (used.train_s + stalls_s)) / step_s, used)
    return _share(share, sampled, _systematic(noise))


def _of_stalls(half_width_s: float, share: float, used: Cycles, step_s: float) -> Share:
    """Their own error, and that of the ordinary step beside them."""
    if share == 0.0:
        half = half_width_s / step_s
        return Share(value=share, low=share - half, high=share + half)
    beside = _share(share, _spread(share * used.train_s / step_s, used), SYSTEMATIC)
    # The step is longer with them: from none at all to twice as many is no straight line.
    ordinary_s, stalls_s = (1.0 - share) * step_s, share * step_s
    ends_s = (max(0.0, stalls_s - half_width_s), stalls_s + half_width_s)
    return _widened(beside, max(abs(end / (ordinary_s + end) - share) for end in ends_s))


def _seconds(part: Quantity, used: Cycles) -> Share:
    if part.half_width_s is not None:
        value, half = float(part.values.mean()), part.half_width_s
        share = Share(value=value, low=value - half, high=value + half)
        return _widened(share, _systematic(part.values) * float(used.train_s.mean()))
    systematic_s = _systematic(part.noise) * float(used.train_s.mean())
    return _share(float(part.values.mean()), _spread(part.noise, used), systematic_s)


def _systematic(noise: Array) -> float:
    """None for what cannot be at all, as a straggler of one device."""
    return SYSTEMATIC if noise.any() else 0.0


def _share(value: float, spread: Spread | None, systematic: float) -> Share:
    interval = mean_interval(value, spread)
    share = Share(value=interval.value, low=interval.low, high=interval.high)
    return _widened(share, systematic)


def _widened(share: Share, error: float) -> Share:
    assert share.value is not None
    known = widened(Interval(value=share.value, low=share.low, high=share.high), error)
    return Share(value=known.value, low=known.low, high=known.high)


def _spread(values: Array, used: Cycles) -> Spread | None:
    # Drift cancels within a cycle, so that few launches may be pooled.
    return spread([values[used.launch == launch] for launch in np.unique(used.launch)], None)


def _slow_rank(picked: Picked | None, used: Cycles) -> SlowRank | None:
    if picked is None or picked.rank is None:
        return None
    excess = mean_interval(float(picked.excess_s.mean()), _spread(picked.excess_s, used))
    return SlowRank(rank=picked.rank, excess_s=excess)
