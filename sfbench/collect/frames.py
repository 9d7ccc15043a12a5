"""Launch records to one tidy frame: a row per (launch, rank, step)."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.errors import MeasureError
from sfbench.common.schema import RUNGS, STEP_COLUMNS
from sfbench.common.units import things
from sfbench.launch.outcome import LaunchOutcome
from sfbench.plan.sweep_plan import LaunchPlan
from sfbench.protocol import record_file

FRAME_COLUMNS = ("launch", "round", "devices", *STEP_COLUMNS, "job_step", "warmup", "stall_s")

_WHOLE = {
    "rank": np.int32,
    "step": np.int64,
    "block": np.int32,
    "cycle": np.int32,
    "turn": np.int32,
    "samples": np.int64,
}


def read_launch(
    plan: LaunchPlan, outcome: LaunchOutcome, launch_dir: Path | None = None
) -> MeasuredLaunch:
    """Read what a launch left; one that failed has no record, but what its ranks saw is kept.

    Raises:
        MeasureError: the record is damaged or of another version.
    """
    if outcome.record is None:
        seen = record_file.read_evidence(launch_dir) if launch_dir is not None else ()
        return MeasuredLaunch(plan=plan, outcome=outcome, record=None, evidence=seen)
    try:
        header, steps = record_file.read(outcome.record)
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise MeasureError(
            f"{things(plan.devices, 'device')}, round {plan.round + 1}: "
            f"the launch's record {outcome.record} cannot be read: {error}"
        ) from error
    return MeasuredLaunch(
        plan=plan, outcome=outcome, record=header, steps=steps, evidence=header.evidence
    )


def step_frame(launches: Sequence[MeasuredLaunch]) -> pd.DataFrame:
    """Make the frame of all launches that were measured.

    Columns: ``launch`` (index in the sweep), ``round`` and ``devices``, then ``STEP_COLUMNS`` with
    counts as integers, ``rung`` as a category of its names, ``measured`` as a bool, times in
    seconds; ``job_step``: number of the step among those that all ranks make at once, alike on
    all ranks, and on ``solo`` that of the next one; ``warmup``: the step came before the launch's
    first block; ``stall_s``: what a stall took of the step, which nobody has looked for as yet.

    Raises:
        MeasureError: a count that is not whole, or a rung that does not exist.
    """
    measured = [(launch.plan, launch.steps) for launch in launches if launch.steps is not None]
    lengths = [len(steps) for _, steps in measured]
    columns: dict[str, object] = {
        "launch": _repeat([plan.index for plan, _ in measured], lengths),
        "round": _repeat([plan.round for plan, _ in measured], lengths),
        "devices": _repeat([plan.devices for plan, _ in measured], lengths),
    }
    for i, name in enumerate(STEP_COLUMNS):
        values = np.concatenate([np.empty(0), *(steps[:, i] for _, steps in measured)])
        columns[name] = _column(name, values)
        if name == "block":
            columns["warmup"] = values < 0
    columns["stall_s"] = np.zeros(sum(lengths))
    shared = [_shared_numbers(steps) for _, steps in measured]
    columns["job_step"] = np.concatenate([np.empty(0, dtype=np.int64), *shared])
    return pd.DataFrame(columns, columns=list(FRAME_COLUMNS), copy=False)


def _shared_numbers(steps: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Each rank's own count less the solo steps that it has made.

    Ranks take their solo turns one after the other, some cycles without one, so that a step of all
    has another count on each rank.
    """
    rank, step, rung = (steps[:, STEP_COLUMNS.index(name)] for name in ("rank", "step", "rung"))
    order = np.lexsort((step, rank))
    solo = rung[order] == RUNGS.index("solo")
    made = np.cumsum(solo) - solo
    first = np.diff(rank[order], prepend=np.nan) != 0
    made -= np.maximum.accumulate(np.where(first, made, 0))
    numbers = np.empty(len(steps), dtype=np.int64)
    numbers[order] = step[order].astype(np.int64) - made
    return numbers


def _repeat(values: Sequence[int], lengths: Sequence[int]) -> npt.NDArray[np.int32]:
    return np.repeat(np.array(values, dtype=np.int32), lengths)


def _column(name: str, values: npt.NDArray[np.float64]) -> object:
    if name == "rung":
        return _rung(values)
    if name == "measured":
        return values != 0
    if name in _WHOLE:
        return _whole(name, values).astype(_WHOLE[name])
    return values


def _rung(values: npt.NDArray[np.float64]) -> pd.Categorical[str]:
    if not np.isin(values, np.arange(len(RUNGS))).all():
        raise MeasureError(f"a launch record holds a rung outside 0..{len(RUNGS) - 1}")
    names = pd.Index([str(rung) for rung in RUNGS])
    return pd.Categorical.from_codes(values.astype(np.int8), categories=names)


def _whole(name: str, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if not np.array_equal(values, np.rint(values)):  # nan is not equal to itself
        raise MeasureError(f"a launch record holds a {name} that is no whole number")
    return values
