"""Whether a series of blocks has a trend, at a stated level of error.

Kendall's S counts the pairs of blocks that come in rising order less those in falling order; in a
series without a trend every order is as likely as another, so its distribution is known exactly
(Mann 1945, "Nonparametric tests against trend", Econometrica 13(3)). Series of several launches are
tested together by the sum of their S: a trend of the job's own comes again in every launch, one of
the machine's does not. Blocks next to each other are alike on a busy machine, which makes runs that
look like trends: S is divided by the square root of (1 + rho) / (1 - rho), with rho the correlation
of neighbours (Hamed and Rao 1998, "A modified Mann-Kendall trend test for autocorrelated data",
Journal of Hydrology 204, with one lag).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from sfbench.analyze.intervals import Array

EXACT_UP_TO = 60
"""Pairs in all up to which the distribution is counted out; beyond, it is normal enough."""
MAX_RHO = 0.9
PLAIN = 10.0
"""A change of so many standard deviations about the line is no correlation of neighbours."""
OWN_SLOPES = 4
"""From so many series on their slopes tell by themselves how much slopes vary."""


def trend_p(series: Sequence[Array]) -> float:
    """Two-sided p of no trend in common, over series of two blocks and more; 1.0 without any.

    From ``OWN_SLOPES`` series on the larger of two p is taken: that of the summed S, and that of
    Student's t over the series' own S, each over its standard deviation, which holds whatever the
    correlation within them is.
    """
    used = [values for values in series if len(values) > 1]
    if not used:
        return 1.0
    counted = _summed_p([kendall_s(v) for v in used], [len(v) for v in used], correlation(used))
    if len(used) < OWN_SLOPES:
        return counted
    scores = np.array([kendall_s(v) / math.sqrt(_variance(len(v))) for v in used])
    return max(counted, _t_p(scores))


def kendall_s(values: Array) -> int:
    """Pairs in rising order less pairs in falling order."""
    upper = np.triu_indices(len(values), 1)
    return int(np.sign(values[None, :] - values[:, None])[upper].sum())


def change(values: Array) -> float:
    """How much a series of logarithms changes from end to end: Theil and Sen's slope x length."""
    first, second = np.triu_indices(len(values), 1)
    if not len(first):
        return 0.0
    slopes = (values[second] - values[first]) / (second - first)
    return float(np.median(slopes)) * (len(values) - 1)


def correlation(series: Sequence[Array]) -> float:
    """Correlation of neighbours about each series' own line, pooled; 0 to ``MAX_RHO``.

    Corrected for what short series lose: about (1 + 4 rho) / n (Kendall 1954).
    """
    rests = [_off_line(values) for values in series if len(values) > 2]
    total = sum(float((rest * rest).sum()) for rest in rests)
    moved = sum(change(values) ** 2 * len(values) for values in series if len(values) > 2)
    if moved >= PLAIN**2 * total:  # no correlation of noise moves a series so far along a line
        return 0.0
    neighbours = sum(float((rest[1:] * rest[:-1]).sum()) for rest in rests)
    length = float(np.mean([len(rest) for rest in rests]))
    rho = neighbours / total
    # Solved for rho; the shortest series cannot tell, and are corrected by half of their span.
    return min(MAX_RHO, max(0.0, (rho * length + 1) / max(length / 2, length - 4)))


def _off_line(values: Array) -> Array:
    places = np.arange(len(values)) - (len(values) - 1) / 2
    centred = values - np.median(values)
    slope = float(change(values)) / (len(values) - 1)
    rest: Array = centred - slope * places
    # One block of a machine that did something else says nothing about its neighbours.
    limit = 3 * 1.4826 * float(np.median(np.abs(rest)))
    return np.clip(rest, -limit, limit) if limit > 0 else rest


def _summed_p(scores: Sequence[int], lengths: Sequence[int], rho: float) -> float:
    total = abs(sum(scores))
    variance = sum(_variance(n) for n in lengths)
    inflation = math.sqrt((1 + rho) / (1 - rho))
    if sum(_pairs(n) for n in lengths) <= EXACT_UP_TO:
        counted = _exact_p(lengths, total)
        # The same deviate, as many times smaller as the correlation inflates it.
        if rho == 0.0 or counted >= 1.0:
            return counted
        deviate = -float(special.ndtri(counted / 2))
        return 2 * float(special.ndtr(-deviate / inflation))
    deviate = max(0, total - 1) / math.sqrt(variance)
    return 2 * float(special.ndtr(-deviate / inflation))


def _exact_p(lengths: Sequence[int], total: int) -> float:
    """P(|S| >= total) if every order of each series is as likely as another."""
    chance = np.ones(1)
    for length in lengths:
        for places in range(2, length + 1):  # a value may go before 0 .. places - 1 others
            chance = np.convolve(chance, np.full(places, 1 / places))
    pairs = len(chance) - 1
    s = pairs - 2 * np.arange(len(chance))
    return float(chance[np.abs(s) >= total].sum())


def _variance(length: int) -> float:
    return length * (length - 1) * (2 * length + 5) / 18


def _pairs(length: int) -> int:
    return length * (length - 1) // 2


def _t_p(values: Array) -> float:
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    mean = abs(float(values.mean()))
    if error == 0.0:
        return 0.0 if mean > 0 else 1.0
    return 2 * float(special.stdtr(len(values) - 1, -mean / error))
