"""Warmup found after the fact, and trends that leave no steady state, in what launches measured.

Both are looked for over blocks, and over all launches of a device count together: what is the
job's own comes again at the same place of every launch. What happens to one launch alone, as a
machine that does something else for a moment, stays in it and widens the interval: to leave out
launches, or parts of them, by how fast they were would bias what remains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from sfbench.analyze.intervals import Array
from sfbench.analyze.monotone import OWN_SLOPES, change, correlation, trend_p

SETTLED_WITHIN = 0.10
"""A slow start, or a trend, counts if it changes the step by more than this ratio."""
TREND_P = 0.002
"""Two-sided level of the test for a trend: so many stationary series would be refused at most."""
START_P = 0.001
"""Level at which the first blocks differ from the rest, for any number of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Frames with warmup labelled."""

    steps: pd.DataFrame
    """The step frame."""
    job: pd.DataFrame
    """``job_steps`` of it."""
    unsteady: tuple[int, ...]
    """Launches that never settled: nothing of them is measured."""
    restless: tuple[int, ...] = ()
    """Launches whose steps changed by more than ``SETTLED_WITHIN``, if chance may explain it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """The ``train`` blocks of one launch, in order."""

    index: int
    log_step_s: Array
    """Logarithm of each block's mean step time."""
    blocks: tuple[int, ...]
    """Their numbers among all blocks of the launch."""


def label_warmup(steps: pd.DataFrame, job: pd.DataFrame) -> Labelled:
    """Label as warmup the first blocks that are slower than the rest, and name what has a trend.

    ``steps``: the step frame; ``job``: ``job_steps`` of it. Looks at the job's step times on the
    ``train`` rung by block; if some are too slow, all steps before the first block that stays, on
    whatever rung, become warmup. Launches of a device count are unsteady if a trend of more than
    ``SETTLED_WITHIN`` remains that they have in common, significant at ``TREND_P``.
    """
    first_block: dict[int, int] = {}
    unsteady: list[int] = []
    restless: list[int] = []
    train = job[(job["rung"] == "train").to_numpy()]
    for _, rows in train.groupby("devices"):
        launches = _launches(rows)
        cut = warm_blocks([one.log_step_s for one in launches])
        left = [one.log_step_s[cut:] for one in launches]
        if trending(left) or (trending([one.log_step_s for one in launches]) and large(left)):
            unsteady += [one.index for one in launches]
        else:
            restless += [one.index for one in launches if _moves(one.log_step_s[cut:])]
        for one in launches:
            # What other rungs measured before the first train block is no warmup for being first:
            # a short launch has one cycle, and the order of its rungs is drawn.
            first_block[one.index] = one.blocks[cut] if cut else 0
    return Labelled(
        steps=_with_label(steps, first_block),
        job=_with_label(job, first_block),
        unsteady=tuple(unsteady),
        restless=tuple(restless),
    )


def warm_blocks(series: Sequence[Array]) -> int:
    """How many first blocks of every launch differ from the rest; at most half of the shortest.

    The number whose difference is most significant is taken, if it is below ``START_P`` over
    the number of candidates and the blocks are more than ``SETTLED_WITHIN`` off.
    """
    most = min(len(values) for values in series) // 2 if series else 0
    candidates = range(1, most + 1)
    found, least = 0, START_P / max(1, most)
    for cut in candidates:
        steps = np.array([values[:cut].mean() - values[cut:].mean() for values in series])
        if abs(float(np.median(steps))) <= math.log1p(SETTLED_WITHIN):
            continue
        p = _mean_p(steps) if len(series) >= OWN_SLOPES else _start_p(series, cut)
        if p < least:
            found, least = cut, p
    return found


def trending(series: Sequence[Array]) -> bool:
    """Whether the launches have a trend in common that is more than chance, and not small."""
    return large(series) and trend_p(series) < TREND_P


def large(series: Sequence[Array]) -> bool:
    """Whether the typical launch changes by more than ``SETTLED_WITHIN``.

    What few blocks are left behind a slow start has to be level if the whole had a trend: they
    alone could not show that it goes on.
    """
    typical = float(np.median([change(values) for values in series])) if series else 0.0
    return abs(typical) > math.log1p(SETTLED_WITHIN)


def _moves(values: Array) -> bool:
    return abs(change(values)) > math.log1p(SETTLED_WITHIN)


def _launches(train: pd.DataFrame) -> list[_Launch]:
    blocks = train.groupby(["launch", "block"], sort=True, as_index=False).agg(
        step_s=("step_s", "mean")
    )
    return [
        _Launch(
            index=int(blocks.loc[here, "launch"].iloc[0]),
            log_step_s=np.log(blocks.loc[here, "step_s"].to_numpy(dtype=np.float64)),
            blocks=tuple(int(block) for block in blocks.loc[here, "block"]),
        )
        for here in (blocks["launch"] == launch for launch in blocks["launch"].unique())
    ]


def _start_p(series: Sequence[Array], cut: int) -> float:
    """t test of the first blocks against the rest, with the variance within both, pooled."""
    parts = [part for values in series for part in (values[:cut], values[cut:])]
    dof = sum(len(part) - 1 for part in parts)
    if dof < 1:
        return 1.0
    variance = sum(float(((part - part.mean()) ** 2).sum()) for part in parts) / dof
    weights = sum(1 / cut + 1 / (len(values) - cut) for values in series)
    mean = sum(float(values[:cut].mean() - values[cut:].mean()) for values in series)
    rho = correlation(parts)
    return _two_sided(mean, math.sqrt(variance * weights * (1 + rho) / (1 - rho)), dof)


def _mean_p(values: Array) -> float:
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    return _two_sided(float(values.mean()), error, len(values) - 1)


def _two_sided(value: float, error: float, dof: int) -> float:
    if error <= 1e-9 * abs(value):
        return 0.0 if value else 1.0
    return 2 * float(special.stdtr(dof, -abs(value) / error))


def _with_label(frame: pd.DataFrame, first_block: Mapping[int, int]) -> pd.DataFrame:
    before = np.zeros(len(frame), dtype=bool)
    for launch, block in first_block.items():
        before |= ((frame["launch"] == launch) & (frame["block"] < block)).to_numpy()
    return frame.assign(warmup=frame["warmup"].to_numpy() | before)
