"""Step times of each cycle on each rung: what time shares are computed from.

A machine that does something else for a moment makes single steps many times as long, and one such
step in one rung turns shares upside down. A cycle with one is left out whole, on all rungs alike,
unless there are many: then such steps are the job's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from sfbench.analyze.batch_length import LengthFit, fit_length, like_train, ring_error_s
from sfbench.analyze.intervals import Array
from sfbench.analyze.repeats import batch_steps, replayed_rows
from sfbench.analyze.steps import ordinary, rank_rows

DISTURBED = 4.0
"""A step this many times its rung's median is a disturbance: waits for data do not count."""
MAX_DISTURBED = 1 / 3
"""If a larger part of the cycles has disturbances they belong to the job."""

FACTOR_STEPS = 20
"""Turns of the alternating means, which converge geometrically."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cycles:
    """Mean seconds per step; nan if a rung did not run. n cycles, R ranks, in order."""

    launch: npt.NDArray[np.int64]
    """Launch of each cycle. Shape (n,)."""
    train_s: Array
    """Job step on the real loader, gradient sync on. Shape (n,)."""
    cached_s: Array
    """Job step on replayed batches, gradient sync on. Shape (n,)."""
    slowest_s: Array
    """Mean over steps of the slowest rank's step, sync off: E_i max_r c_ri. Shape (n,)."""
    unsynced_s: Array
    """Each rank's own step, sync off: c_r. Shape (n, R)."""
    solo_s: Array
    """Each rank's step with the others parked: s_r. Shape (n, R)."""
    disturbed: int = 0
    """Cycles left out."""
    batches_s: Array | None = None
    """The unsynced steps by the batch that was replayed. Shape (batches, R)."""
    ring_error_s: float = 0.0
    """Half of the 95 % interval of what the kept batches say of all batches, per step: no number of
    cycles makes it smaller."""
    wait_s: float | None = None
    """Mean wait for batches in the train steps, if batches are of unlike length."""


def cycles(
    steps: pd.DataFrame, job: pd.DataFrame, replayed: Mapping[int, int] | None = None
) -> Cycles:
    """Cycles of one point, of all its launches, in order.

    ``steps``: the step frame of the point with warmup labelled; ``job``: ``job_steps`` of it.
    ``replayed``: launch -> batches that its rungs replay in turn.
    Steps in warmup, or in which a rank validated or saved, are left out on all ranks.
    """
    kept, solo = ordinary(job), _solo_rows(steps)
    every = _index(kept)
    index = every.difference(_disturbed(kept, solo))
    if len(every) - len(index) > MAX_DISTURBED * len(every):
        index = every
    ranks = int(steps["devices"].iloc[0]) if len(steps) else 0
    found = Cycles(
        launch=index.get_level_values("launch").to_numpy(dtype=np.int64),
        train_s=_per_cycle(kept, "train", "step_s", index),
        cached_s=_per_cycle(kept, "cached", "step_s", index),
        slowest_s=_per_cycle(kept, "unsynced", "slowest_s", index),
        unsynced_s=_per_rank(rank_rows(steps, kept, "unsynced"), index, ranks),
        solo_s=_per_rank(solo, index, ranks),
        disturbed=len(every) - len(index),
        batches_s=batch_steps(_within(steps, index), replayed, ranks) if replayed else None,
    )
    if not replayed:
        return found
    return _of_like_batches(found, _within(steps, index), kept, solo, index, replayed)


def _of_like_batches(
    found: Cycles,
    steps: pd.DataFrame,
    kept: pd.DataFrame,
    solo: pd.DataFrame,
    index: pd.MultiIndex,
    replayed: Mapping[int, int],
) -> Cycles:
    """Each rung's times on batches as long as those of the cycle's train steps."""
    fit = fit_length(replayed_rows(steps, replayed))
    error_s = ring_error_s(replayed_rows(steps, replayed, ("unsynced", "solo")), fit)
    train = rank_rows(steps, kept, "train")
    unlike = fit is not None or error_s > 0
    wait_s = float(train["data_wait_s"].mean()) if unlike and len(train) else None
    found = replace(found, ring_error_s=error_s, wait_s=wait_s)
    if fit is None or not len(train):
        return found
    together = {
        rung: kept[(kept["rung"] == rung).to_numpy()] for rung in ("train", "cached", "unsynced")
    }
    shifts = {
        rung: _job_shift(fit, together["train"], together[rung], index)
        for rung in ("cached", "unsynced")
    }
    lengths = [together[r]["elements"].to_numpy(dtype=np.float64) for r in ("train", "cached")]
    if all(len(one) and (one > 0).all() for one in lengths):
        error_s = math.hypot(error_s, fit.error_s(lengths[0], lengths[1]))
    ranks = found.unsynced_s.shape[1]
    apart = rank_rows(steps, kept, "unsynced")
    return replace(
        found,
        ring_error_s=error_s,
        cached_s=found.cached_s + shifts["cached"],
        slowest_s=found.slowest_s + shifts["unsynced"],
        unsynced_s=found.unsynced_s + _rank_shift(fit, train, apart, index, ranks),
        solo_s=found.solo_s + _rank_shift(fit, train, solo, index, ranks),
    )


def _job_shift(
    fit: LengthFit, train: pd.DataFrame, rung: pd.DataFrame, index: pd.MultiIndex
) -> Array:
    shift = like_train(fit, train, rung, ["launch", "cycle"]).reindex(index)
    return np.asarray(shift.fillna(0.0), dtype=np.float64)


def _rank_shift(
    fit: LengthFit, train: pd.DataFrame, rung: pd.DataFrame, index: pd.MultiIndex, ranks: int
) -> Array:
    table = like_train(fit, train, rung, ["launch", "cycle", "rank"]).unstack("rank")
    table = table.reindex(index=index, columns=range(ranks)).fillna(0.0)
    return np.asarray(table, dtype=np.float64)


def _index(rows: pd.DataFrame) -> pd.MultiIndex:
    """Each (launch, cycle) once, in order."""
    keys = rows[["launch", "cycle"]].drop_duplicates().sort_values(["launch", "cycle"])
    return pd.MultiIndex.from_frame(keys)


def _within(steps: pd.DataFrame, index: pd.MultiIndex) -> pd.DataFrame:
    return steps[pd.MultiIndex.from_frame(steps[["launch", "cycle"]]).isin(index)]


def _disturbed(kept: pd.DataFrame, solo: pd.DataFrame) -> pd.MultiIndex:
    """Cycles in which a step took many times what its rung takes in that launch."""
    # In a synced step all ranks wait for the one that waits for data: the least busy rank tells.
    together = kept.assign(
        busy_s=kept["busy_s"].where(kept["rung"] != "unsynced", kept["slowest_s"])
    )
    columns = ["launch", "cycle", "rung", "busy_s"]
    rows = pd.concat([together[columns], solo.rename(columns={"step_s": "busy_s"})[columns]])
    usual = rows.groupby(["launch", "rung"], observed=True)["busy_s"].transform("median")
    return _index(rows[(rows["busy_s"] > DISTURBED * usual).to_numpy()])


def filled_solo(cycles: Cycles) -> Array:
    """Solo times with a rank's missing cycles estimated: the rank's mean plus the cycle's drift.

    Not every rank need have a turn in every cycle; if one had none in a launch, its ratio to the
    others is taken from the other launches. nan remains if a rank had no turn at all.
    """
    filled = cycles.solo_s.copy()
    for launch in np.unique(cycles.launch):
        here = cycles.launch == launch
        table = cycles.solo_s[here]
        known = np.isfinite(table)
        if known.any(axis=0).all() and known.any(axis=1).all():
            means = np.nanmean(table, axis=0)
            drift = np.nanmean(table - means, axis=1, keepdims=True)
            filled[here] = np.where(known, table, means + drift)
    return np.where(np.isfinite(filled), filled, _by_factors(filled))


def _by_factors(solo_s: Array) -> Array:
    """Solo times as a factor of the rank times one of the cycle, by alternating means of logs."""
    known: npt.NDArray[np.bool_] = np.asarray(np.isfinite(solo_s))
    if not known.any(axis=0).all() or known.all():
        return solo_s
    logs = np.where(known, np.log(np.where(known, solo_s, 1.0)), 0.0)
    rank, cycle = np.zeros(solo_s.shape[1]), np.zeros(len(solo_s))
    for _ in range(FACTOR_STEPS):
        cycle = ((logs - rank) * known).sum(axis=1) / np.maximum(1, known.sum(axis=1))
        rank = ((logs - cycle[:, None]) * known).sum(axis=0) / known.sum(axis=0)
    fitted: Array = np.exp(cycle[:, None] + rank)
    return np.where(known.any(axis=1, keepdims=True), fitted, np.nan)


def _per_cycle(kept: pd.DataFrame, rung: str, column: str, index: pd.MultiIndex) -> Array:
    rows = kept[(kept["rung"] == rung).to_numpy()]
    means = rows.groupby(["launch", "cycle"])[column].mean()
    return means.reindex(index).to_numpy(dtype=np.float64)


def _solo_rows(steps: pd.DataFrame) -> pd.DataFrame:
    solo = steps["measured"] & (steps["rung"] == "solo") & (steps["turn"] == steps["rank"])
    rows = steps[(solo & ~steps["warmup"]).to_numpy()]
    return rows[(rows["other_s"] <= 0).to_numpy()]


def _per_rank(rows: pd.DataFrame, index: pd.MultiIndex, ranks: int) -> Array:
    """Mean step time by cycle and rank, nan if there is none."""
    means = rows.groupby(["launch", "cycle", "rank"])["step_s"].mean().unstack("rank")
    table = means.reindex(index=index, columns=range(ranks))
    return table.to_numpy(dtype=np.float64)
