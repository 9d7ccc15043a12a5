"""Whether one rank is slower than the others: picked on half of the cycles, scored on the rest.

The largest of several means is above their mean even if all ranks are alike. So the rank is
picked on one half and its excess taken on the other, and the other way round: without a slow rank
that excess is zero on average.

If batches are of unlike length the few that are replayed may be longer on one rank, in all
cycles alike. So the excess has to stand out from what batches differ by as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from sfbench.analyze.intervals import Array
from sfbench.common.units import things

MIN_CYCLES = 3
"""Two in one half, one in the other. So few name only a rank that is much slower than noise."""
NOISE_P = 0.0025
"""One-sided p below which an excess is above noise.

A rank that is the largest in both halves by chance is scored on halves that both flatter it. With
2 to 8 ranks alike and 3 to 18 cycles this level names one in at most 1 % of the launches.
"""
MIN_BATCHES = 8
"""Fewer batches do not tell how much batches differ."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picked:
    """The slow rank as each cycle sees it."""

    rank: int | None
    """The slow rank; None: no rank's excess is above noise."""
    slow: npt.NDArray[np.int64]
    """For each cycle the rank picked on the other half. Shape (n,)."""
    excess_s: Array
    """For each cycle that rank's step time above the mean of the others. Shape (n,)."""


def pick_slow(unsynced_s: Array, batches_s: Array | None = None) -> Picked:
    """Pick the slow rank from each rank's step time per cycle, shape (n, R), in s.

    Cycles alternate between the halves, so that drift falls on both alike. The excess is tested
    against zero by a one-sided t test over cycles at ``NOISE_P``, and, if each batch's step time
    is known (``batches_s``, shape (batches, R)), over batches too: at ``NOISE_P / R``, since the
    largest of R ranks is tested there.

    Raises:
        ValueError: fewer than ``MIN_CYCLES`` cycles, or fewer than two ranks.
    """
    cycles, ranks = unsynced_s.shape
    if cycles < MIN_CYCLES or ranks < 2:
        raise ValueError(
            f"{things(cycles, 'cycle')} of {things(ranks, 'rank')} do not tell a slow one"
        )
    halves = [unsynced_s[start::2].mean(axis=0).argmax() for start in (0, 1)]
    slow = np.where(np.arange(cycles) % 2 == 0, halves[1], halves[0]).astype(np.int64)
    own = unsynced_s[np.arange(cycles), slow]
    excess = own - (unsynced_s.sum(axis=1) - own) / (ranks - 1)
    rank = None
    if _p_above_zero(excess) < NOISE_P:
        largest = int(unsynced_s.mean(axis=0).argmax())
        rank = largest if _above_batches(batches_s, largest) else None
    return Picked(rank=rank, slow=slow, excess_s=excess)


def _above_batches(batches_s: Array | None, rank: int) -> bool:
    """Whether a rank is slower than batches of unlike length would make it."""
    if batches_s is None or len(batches_s) < MIN_BATCHES:
        return True
    ranks = batches_s.shape[1]
    own = batches_s[:, rank]
    excess = own - (batches_s.sum(axis=1) - own) / (ranks - 1)
    return bool(_p_above_zero(excess) < NOISE_P / ranks)


def _p_above_zero(values: Array) -> float:
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    mean = float(values.mean())
    if error == 0.0:
        return 0.0 if mean > 0 else 1.0
    return 1.0 - float(special.stdtr(len(values) - 1, mean / error))
