"""Batches of unlike length: what a step takes as a function of the numbers in its batch.

Rungs that do not load replay a few kept batches, while the job goes on to others. If batches
differ in length the two are other work, and a difference between them says little about loading,
whatever the number of cycles. So each rung's time is moved to the lengths that the train steps of
its cycle had, along a fit of step time over length: quadratic, on the steps of the ``unsynced``
rung, where no rank waits for another, each block around its own mean, so that drift cancels.

What is left by which kept batches differ, beside their length, does not cancel: it is a sampling
error of the ring, the same in all cycles, and often in all launches, whose seeds are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from sfbench.analyze.intervals import Array

Groups = npt.NDArray[np.int64]
MIN_ROWS = 24
"""Steps below which no fit is made."""
CURVED_FROM = 8
"""Lengths from which on a curve is told from a line."""
SURE_P = 0.001
"""Level at which kept batches differ in what their length does not tell."""
Z95 = 1.96


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LengthFit:
    """Seconds per step over the length of its batch, but for a constant."""

    scale: float
    terms: Array
    """Of the length over ``scale``, and of its square if there is a second one."""
    covariance: Array
    """Of the terms."""

    def seconds(self, elements: Array) -> Array:
        """What batches of so many numbers take, but for a constant."""
        return np.asarray(self.powers(elements) @ self.terms, dtype=np.float64)

    def powers(self, elements: Array) -> Array:
        """What ``terms`` multiply. Shape (n, terms)."""
        return _powers(elements / self.scale, len(self.terms))

    def error_s(self, first: Array, second: Array) -> float:
        """Half of the 95 % interval of how much longer ``first`` take than ``second``, on the
        mean."""
        apart = self.powers(first).mean(axis=0) - self.powers(second).mean(axis=0)
        return Z95 * math.sqrt(max(0.0, float(apart @ self.covariance @ apart)))


def fit_length(rows: pd.DataFrame) -> LengthFit | None:
    """Least squares over steps ``rows`` of the ``unsynced`` rung, one per rank and step.

    None if batches are alike or lengths are not known. Uses ``launch``, ``block``, ``rank``,
    ``step_s`` and ``elements``.
    """
    lengths = rows["elements"].to_numpy(dtype=np.float64)
    if len(rows) < MIN_ROWS or not (lengths > 0).all() or np.ptp(lengths) == 0:
        return None
    scale = float(lengths.mean())
    blocks = _blocks(rows)
    powers = _powers(lengths / scale, 2 if len(np.unique(lengths)) >= CURVED_FROM else 1)
    design: Array = np.stack([_off_mean(column, blocks) for column in powers.T], axis=1)
    off_s = _off_mean(rows["step_s"].to_numpy(dtype=np.float64), blocks)
    terms, *_ = np.linalg.lstsq(design, off_s)
    left = off_s - design @ terms
    dof = len(rows) - len(np.unique(blocks)) - powers.shape[1]
    variance = float(left @ left) / max(1, dof)
    return LengthFit(
        scale=scale,
        terms=np.asarray(terms, dtype=np.float64),
        covariance=variance * np.linalg.pinv(design.T @ design),
    )


def _powers(lengths: Array, count: int) -> Array:
    return np.stack([lengths**n for n in range(1, count + 1)], axis=1)


def like_train(
    fit: LengthFit, train: pd.DataFrame, rung: pd.DataFrame, keys: list[str]
) -> pd.Series[float]:
    """Seconds per step by which a rung's batches are shorter than those of train, by ``keys``.

    ``train`` and ``rung``: steps with ``elements``. nan if a train step's length is not known.
    """
    here, there = (_seconds(fit, rows, keys) for rows in (train, rung))
    return here - there


def _seconds(fit: LengthFit, rows: pd.DataFrame, keys: list[str]) -> pd.Series[float]:
    lengths = rows["elements"].to_numpy(dtype=np.float64)
    seconds = np.where(lengths > 0, fit.seconds(lengths), np.nan)
    # A mean with an unknown in it is unknown.
    return pd.Series(seconds, index=rows.index).groupby([rows[key] for key in keys]).agg(_mean)


def _mean(values: pd.Series[float]) -> float:
    return float(values.to_numpy().mean())


def ring_error_s(rows: pd.DataFrame, fit: LengthFit | None) -> float:
    """Half of the 95 % interval of what the kept batches' mean step says of all batches'.

    ``rows``: replayed steps of the ``unsynced`` and ``solo`` rungs, which meet the same batches in
    a cycle, with their place in the ring as ``batch``. From the variance between batches (one-way,
    each block around its mean) of what their length does not tell; 0 if that is not significant
    at ``SURE_P``. Launches count once: as a rule all of them keep the same batches.
    """
    if len(rows) < MIN_ROWS:
        return 0.0
    seconds = rows["step_s"].to_numpy(dtype=np.float64)
    if fit is not None:
        seconds = seconds - fit.seconds(rows["elements"].to_numpy(dtype=np.float64))
    blocks = _blocks(rows)
    off = pd.Series(_off_mean(seconds, blocks))
    groups = off.groupby(rows.groupby(["launch", "rank", "batch"]).ngroup().to_numpy())
    sizes = groups.size().to_numpy(dtype=np.float64)
    dof, within_dof = len(sizes) - 1, len(off) - len(sizes)
    if dof < 1 or within_dof < 1:
        return 0.0
    between = float((sizes * groups.mean().to_numpy() ** 2).sum()) / dof
    within = float(((off - groups.transform("mean")) ** 2).sum()) / within_dof
    if between <= within or _p(between, within, dof, within_dof) > SURE_P:
        return 0.0
    in_a_block = len(rows) / len(np.unique(blocks))
    variance = (between - within) / float(sizes.mean()) / (1 - 1 / in_a_block)
    batches = int(rows.groupby("launch")["batch"].nunique().min())
    return Z95 * float(np.sqrt(variance / batches))


def _p(between: float, within: float, dof: int, within_dof: int) -> float:
    return 0.0 if within == 0.0 else float(special.fdtrc(dof, within_dof, between / within))


def _blocks(rows: pd.DataFrame) -> Groups:
    return np.asarray(rows.groupby(["launch", "block", "rank"]).ngroup(), dtype=np.int64)


def _off_mean(values: Array, groups: Groups) -> Array:
    sums = np.bincount(groups, weights=values)
    off: Array = values - (sums / np.bincount(groups))[groups]
    return off
