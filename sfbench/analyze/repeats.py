"""The batches behind unsynced steps: they are replayed, and the same ones come again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sfbench.analyze.intervals import Array
from sfbench.common.schema import Rung

RARE = 0.05
"""Part of the steps that counts as rare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unevenness:
    """How the unsynced steps of a rank vary."""

    same_batch_share: float
    """Part of the variance that comes again with the same batch, 0 to 1."""
    rare_share: float
    """Part of the time above each rank's median that the slowest ``RARE`` of its steps hold."""


def batch_steps(steps: pd.DataFrame, kept: Mapping[int, int], ranks: int) -> Array:
    """Mean unsynced step of each rank over all turns of a batch, shape (batches, ranks), in s.

    ``steps`` and ``kept`` as in ``unevenness``. One row for each (launch, place in the ring) that
    all ranks came to.
    """
    rows = replayed_rows(steps, kept)
    means = rows.groupby(["launch", "batch", "rank"])["step_s"].mean().unstack("rank")
    table: Array = means.reindex(columns=range(ranks)).dropna().to_numpy(dtype=np.float64)
    return table


def replayed_rows(
    steps: pd.DataFrame, kept: Mapping[int, int], rungs: Sequence[Rung] = ("unsynced",)
) -> pd.DataFrame:
    """Measured steps on rungs where no rank waits for another (``solo``: of the rank whose turn it
    was), with the place of their batch in the ring as ``batch``."""
    own = (steps["rung"] != "solo") | (steps["turn"] == steps["rank"])
    rows = steps[(steps["rung"].isin(rungs) & own & (steps["block"] >= 0)).to_numpy()]
    rows = rows[rows["launch"].map(kept).fillna(0).to_numpy() > 0]
    block = rows.groupby(["launch", "block", "rank"])
    place = rows["step"] - block["step"].transform("min")
    length = block["step"].transform("size")
    batch = (rows["cycle"] * length + place) % rows["launch"].map(kept)
    rows = rows.assign(batch=batch)
    return rows[(rows["measured"] & ~rows["warmup"] & (rows["other_s"] <= 0)).to_numpy()]


def unevenness(steps: pd.DataFrame, kept: Mapping[int, int]) -> Unevenness | None:
    """Look at the steps on the ``unsynced`` rung; None if no batch came twice.

    ``steps``: the step frame of one point. ``kept``: launch -> batches that the rung hands out in
    turn; cycle c begins where c blocks of so many steps have ended, so the place of a step tells
    its batch. ``same_batch_share`` is the intraclass correlation of step_s over (rank, batch) after
    each block's mean is taken off: (B - W) / (B + (k - 1) W) with B and W the mean squares between
    and within groups of k (Shrout and Fleiss 1979, one-way).
    """
    rows = replayed_rows(steps, kept)
    if not len(rows):
        return None
    block_mean = rows.groupby(["launch", "block", "rank"])["step_s"].transform("mean")
    return _unevenness(rows.assign(off_s=rows["step_s"] - block_mean))


def _unevenness(rows: pd.DataFrame) -> Unevenness | None:
    groups = rows.groupby(["launch", "rank", "batch"])["off_s"]
    sizes, means = groups.size().to_numpy(dtype=np.float64), groups.mean().to_numpy()
    within = float(((rows["off_s"] - groups.transform("mean")) ** 2).sum())
    within_dof = sizes.sum() - len(sizes)
    if within_dof < 1 or len(sizes) < 2:
        return None
    b = float((sizes * means**2).sum()) / (len(sizes) - 1)
    w = within / within_dof
    k = float(sizes.mean())
    total = b + (k - 1) * w
    return Unevenness(
        same_batch_share=max(0.0, (b - w) / total) if total else 0.0,
        rare_share=_rare_share(rows),
    )


def _rare_share(rows: pd.DataFrame) -> float:
    medians = rows.groupby("rank")["step_s"].transform("median")
    above: Array = np.sort(np.maximum(rows["step_s"] - medians, 0.0))[::-1]
    total = float(above.sum())
    return float(above[: max(1, round(RARE * len(above)))].sum()) / total if total else 0.0
