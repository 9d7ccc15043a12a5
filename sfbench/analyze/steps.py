"""The step frame seen as steps of the whole job: one row per (launch, step)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from sfbench.analyze.intervals import Array
from sfbench.common.schema import Rung

TOGETHER: tuple[Rung, ...] = ("train", "cached", "unsynced")
"""Rungs that all ranks run at once."""
MAX_OTHER = 0.5
"""If more than this part of the steps saves or validates, such steps are the job: kept."""


def job_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """Join the ranks of each measured step on the rungs that all ranks run at once.

    ``steps`` is the frame of ``sfbench.collect.frames.step_frame``. Columns of the answer, in order
    of launch and step: ``launch``, ``round``, ``devices``, ``job_step``, ``block``, ``cycle``,
    ``rung``, ``warmup`` as there; ``step_s`` mean over ranks (all-reduce keeps them together),
    ``slowest_s`` maximum over ranks, ``busy_s`` minimum over ranks of the step without its wait for
    data, ``samples`` sum over ranks, ``elements`` maximum over ranks (0: not known on some), and
    ``other``: some ranks validated or saved in this step and others waited, so that it is no
    ordinary one. If all did, it is in no rank's ``step_s``.

    A step that was not measured on every rank is left out.
    """
    rows = steps[(steps["measured"] & steps["rung"].isin(TOGETHER)).to_numpy()]
    order, starts = _groups(rows)
    counts = np.diff(np.append(starts, len(rows)))
    rows = rows.take(order)
    first = rows.iloc[starts]
    job: pd.DataFrame = first[
        ["launch", "round", "devices", "job_step", "block", "cycle", "rung", "warmup"]
    ].copy()
    step_s = rows["step_s"].to_numpy()
    job["step_s"] = _reduce(np.add, step_s, starts) / counts
    job["slowest_s"] = _reduce(np.maximum, step_s, starts)
    job["busy_s"] = _reduce(np.minimum, step_s - rows["data_wait_s"].to_numpy(), starts)
    job["samples"] = _reduce(np.add, rows["samples"].to_numpy(dtype=np.float64), starts)
    elements = rows["elements"].to_numpy(dtype=np.float64)
    known = _reduce(np.minimum, elements, starts) > 0
    job["elements"] = np.where(known, _reduce(np.maximum, elements, starts), 0.0)
    busy = (rows["other_s"].to_numpy() > 0).astype(np.float64)
    ranks_busy = _reduce(np.add, busy, starts)
    job["other"] = (ranks_busy > 0) & (ranks_busy < counts)
    complete = job["devices"].to_numpy() == counts
    answer: pd.DataFrame = job[complete].reset_index(drop=True)
    return answer


def ordinary(job: pd.DataFrame) -> pd.DataFrame:
    """The steps that figures are made of: steady, and without validation or saving.

    If more than ``MAX_OTHER`` of a rung's steps have such other work they stay, with ``step_s``
    as it is: the other work is not in it.
    """
    steady = job[~job["warmup"].to_numpy()]
    often = steady.groupby("rung", observed=True)["other"].transform("mean") > MAX_OTHER
    return steady[(~steady["other"] | often).to_numpy()]


def rank_rows(steps: pd.DataFrame, kept: pd.DataFrame, rung: str) -> pd.DataFrame:
    """Every rank's rows of the job steps ``kept`` on one rung."""
    rows = steps[(steps["measured"] & (steps["rung"] == rung)).to_numpy()]
    wanted = kept[(kept["rung"] == rung).to_numpy()]
    span = 1 + int(rows["job_step"].max()) if len(rows) else 1
    return rows[np.isin(_key(rows, span), _key(wanted, span))]


def _groups(rows: pd.DataFrame) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Order that puts the ranks of a step side by side, and where each step starts in it."""
    key = _key(rows, 1 + int(rows["job_step"].max()) if len(rows) else 1)
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    return order, starts


def _reduce(how: np.ufunc, values: Array, starts: npt.NDArray[np.intp]) -> Array:
    if not len(starts):  # reduceat refuses
        return values[:0]
    reduced: Array = how.reduceat(values, starts)
    return reduced


def _key(rows: pd.DataFrame, span: int) -> npt.NDArray[np.int64]:
    """One number for (launch, job_step); ``span`` is above every step."""
    launch: npt.NDArray[np.int64] = rows["launch"].to_numpy(dtype=np.int64)
    key: npt.NDArray[np.int64] = launch * span + rows["job_step"].to_numpy(dtype=np.int64)
    return key
