"""Where a series of step times becomes steady. numpy and the standard library only.

MSER-5: cut the start of the series where the marginal standard error of what remains is least,
on means of five steps. White (1997), "An effective truncation heuristic for bias reduction in
simulation output", Simulation 69(6); means of five: White, Cobb and Spratt (2000), "A comparison of
five steady-state truncation heuristics for simulation", WSC'00. The last means are no candidates,
since a few values agree by chance: Hoad, Robinson and Davies (2010), "Automating warm-up length
estimation", JORS 61(9).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BATCH = 5
"""Steps per batch mean."""
MIN_BATCHES = 5
"""With fewer, no cut can be told from chance."""
MAX_KEPT = 5
"""Batches at the end that are never cut; a third of the series, at least 2, if it is short."""
SETTLED_WITHIN = 0.10
"""Steps before a cut count as unsettled if their median is off by more than this ratio."""
ROUNDING = 1e-12
"""Part of a sum of squares below which a difference of two of them is no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Where steady state begins."""

    cut: int
    """Steps to leave out at the start, a multiple of ``BATCH``."""
    found: bool
    """False: the best cut lies beyond half of the series, or the series is too short to tell."""


def mser5(step_s: npt.NDArray[np.float64]) -> Steady:
    """Find the cut of a series of step times (seconds, in order) by MSER-5.

    With batch means y_1..y_n the cut d minimises sum_{i>d} (y_i - mean_{i>d} y)^2 / (n - d)^2.
    Steps at the end that fill no batch are not looked at. O(n).

    Raises:
        ValueError: not one-dimensional, or a value is not finite.
    """
    if step_s.ndim != 1 or not np.isfinite(step_s).all():
        raise ValueError("step_s must be one-dimensional and finite")
    batches = len(step_s) // BATCH
    if batches < MIN_BATCHES:
        return Steady(cut=0, found=False)
    means = step_s[: batches * BATCH].reshape(batches, BATCH).mean(axis=1)
    kept = min(MAX_KEPT, max(2, batches // 3))
    cut = int(np.argmin(_marginal_error(means)[: batches - kept + 1]))
    return Steady(cut=cut * BATCH, found=2 * cut <= batches)


def settled(step_s: npt.NDArray[np.float64]) -> bool:
    """Whether a launch that is still warming up may be measured.

    A cut beyond half of the series alone says little, since bursts of a busy machine bring it
    about: the typical step before the cut has to differ as well, by more than ``SETTLED_WITHIN``.
    """
    steady = mser5(step_s)
    before, after = step_s[: steady.cut], step_s[steady.cut :]
    if steady.found or not len(before):
        return steady.found
    return bool(abs(np.median(before) / np.median(after) - 1) <= SETTLED_WITHIN)


def _marginal_error(means: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """MSER of every cut 0..n-1, from suffix sums (of centred values, so that nothing cancels)."""
    centred = means - means.mean()
    left = np.arange(len(means), 0, -1, dtype=np.float64)
    total = np.cumsum(centred[::-1])[::-1]
    squares = np.cumsum((centred * centred)[::-1])[::-1]
    around = squares - total * total / left
    around[around < ROUNDING * squares] = 0.0  # equal steps, but for rounding
    error: npt.NDArray[np.float64] = around / left**2
    return error
