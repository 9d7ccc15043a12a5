"""Where the ranks' own time goes inside a step: loader, forward, update, and the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from sfbench.analyze.intervals import Array
from sfbench.common.schema import Rung

PHASES = ("data_wait_s", "forward_s", "backward_s", "update_s")
"""``backward_s`` is what a step takes beside the other three: backward, and the loop's own work."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Phases:
    """Mean seconds per step of each rank on one rung. Each shape (R,), nan if a rank has none.

    On accelerators by the device's clock: forward and update of the steps that pass unmeasured
    before a block, so that no measured step carries the marks.
    """

    step_s: Array
    data_wait_s: Array
    forward_s: Array
    backward_s: Array
    update_s: Array

    def of(self, phase: str) -> Array:
        """One of ``PHASES``."""
        values: Array = getattr(self, phase)
        return values


def steady_rows(steps: pd.DataFrame, rung: Rung) -> pd.DataFrame:
    """Measured rows of one rung, without warmup and without steps that saved or validated.

    ``steps``: the step frame of one point, warmup labelled. Solo rows are those of the rank whose
    turn it was.
    """
    keep = steps["measured"] & ~steps["warmup"] & (steps["rung"] == rung) & (steps["other_s"] <= 0)
    if rung == "solo":
        keep &= steps["turn"] == steps["rank"]
    return steps[keep.to_numpy()]


def _marked_rows(steps: pd.DataFrame, rung: Rung) -> pd.DataFrame:
    """Unmeasured rows of one rung whose phases were marked."""
    keep = steps["forward_s"].notna() & ~steps["warmup"] & (steps["rung"] == rung)
    keep &= steps["other_s"] <= 0
    if rung == "solo":
        keep &= steps["turn"] == steps["rank"]
    return steps[keep.to_numpy()]


def phases(steps: pd.DataFrame, rung: Rung) -> Phases:
    """Mean over the steady steps of a rung, by rank."""
    rows = steady_rows(steps, rung)
    ranks = int(steps["devices"].iloc[0]) if len(steps) else 0
    marked = rows if rows["forward_s"].notna().any() else _marked_rows(steps, rung)

    def mean(rows: pd.DataFrame, column: str) -> Array:
        count = np.bincount(rows["rank"], minlength=ranks).astype(np.float64)
        total = np.bincount(rows["rank"], weights=rows[column].to_numpy(), minlength=ranks)
        with np.errstate(invalid="ignore"):
            answer: Array = total / count
        return answer

    step_s, wait_s = mean(rows, "step_s"), mean(rows, "data_wait_s")
    forward_s, update_s = mean(marked, "forward_s"), mean(marked, "update_s")
    return Phases(
        step_s=step_s,
        data_wait_s=wait_s,
        forward_s=forward_s,
        backward_s=step_s - wait_s - forward_s - update_s,
        update_s=update_s,
    )


def waits_per_cycle(steps: pd.DataFrame) -> Array:
    """Mean seconds per step that each rank waited for its loader on ``train``. Shape (n, R).

    One row per cycle of each launch, nan if a rank has no step.
    """
    rows = steady_rows(steps, "train")
    ranks = int(steps["devices"].iloc[0]) if len(steps) else 0
    means = rows.groupby(["launch", "cycle", "rank"])["data_wait_s"].mean().unstack("rank")
    return means.reindex(columns=range(ranks)).to_numpy(dtype=np.float64)
