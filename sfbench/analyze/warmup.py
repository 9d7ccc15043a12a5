"""Warmup found after the fact, in what a launch measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sfbench.common.steady import BATCH, MIN_BATCHES, Steady, mser5

SETTLED_WITHIN = 0.10
"""Steps before the cut count as unsettled where their median is off by more than this ratio.

MSER-5 cuts at any disturbance, a burst of a busy machine or the stall at an epoch's start among
them. Those move means but not medians: they belong to the run and stay in it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Frames with warmup labelled."""

    steps: pd.DataFrame
    """The step frame."""
    job: pd.DataFrame
    """``job_steps`` of it."""
    unsteady: tuple[int, ...]
    """Launches that never settled: nothing of them is measured."""


def label_warmup(steps: pd.DataFrame, job: pd.DataFrame) -> Labelled:
    """Label as warmup what each launch's ``train`` steps show to be unsettled.

    ``steps``: the step frame; ``job``: ``job_steps`` of it. MSER-5 is applied to the job's step
    times on the ``train`` rung, in order; all steps before the cut, on whatever rung, become
    warmup. A launch is unsteady where the cut lies beyond half.
    """
    train = job[(job["rung"] == "train").to_numpy()]
    first_step: dict[int, int] = {}
    unsteady = []
    for launch in train["launch"].unique():
        rows = train[(train["launch"] == launch).to_numpy()]
        steady = settled(rows["step_s"].to_numpy(dtype=np.float64))
        if not steady.found:
            unsteady.append(int(launch))
        first_step[int(launch)] = int(rows["step"].iloc[steady.cut])
    return Labelled(
        steps=_with_label(steps, first_step),
        job=_with_label(job, first_step),
        unsteady=tuple(unsteady),
    )


def settled(step_s: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Steady:
    """MSER-5, with a cut taken only where the typical step before it differs (SETTLED_WITHIN)."""
    if len(step_s) < BATCH * MIN_BATCHES:  # nothing to judge by
        return Steady(cut=0, found=True)
    steady = mser5(step_s)
    before, after = step_s[: steady.cut], step_s[steady.cut :]
    if not len(before) or abs(np.median(before) / np.median(after) - 1) <= SETTLED_WITHIN:
        return Steady(cut=0, found=True)
    return steady


def _with_label(frame: pd.DataFrame, first_step: Mapping[int, int]) -> pd.DataFrame:
    before = np.zeros(len(frame), dtype=bool)
    for launch, step in first_step.items():
        before |= ((frame["launch"] == launch) & (frame["step"] < step)).to_numpy()
    return frame.assign(warmup=frame["warmup"].to_numpy() | before)
