"""Where ranks stalled: the single long times of their own, before they are joined by a rule.

A rank's own time from its update to its next fetch, from that to its forward, and from there to the
update without the backward, is hardly anything in an ordinary step, and waits for nobody but in
collectives of the script's own, which are taken off. If it is long the rank stalls, whatever the
rung. Evaluation and saving, which hooks see, are told in columns of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from sfbench.analyze.intervals import Array
from sfbench.collect.measured_launch import MeasuredLaunch

LONG = 0.1
"""A rank stalls if its own time is longer than usual by this part of a step ..."""
LONG_S = 1e-3
"""... and by this ..."""
NOISE = 10.0
"""... and by this many times what it usually deviates."""
ONE_FETCH = 1.01
"""With more fetches per step some come after the first forward: what lies between is not known."""

Bools = npt.NDArray[np.bool_]


def own_events(launches: Sequence[MeasuredLaunch], steps: pd.DataFrame) -> pd.DataFrame:
    """Long times of a rank's own: launch, rank, step, pass_started and size_s."""
    own = _own_s(launches, steps)
    usual = _median(steps, own)
    least = max(LONG * usual_step_s(steps), LONG_S)
    deviation = _median(steps, np.abs(own - usual))
    size_s = own - usual
    if _on_device(launches):
        # The host runs ahead there: what it spends costs only what the device then waits for.
        step_s = steps["step_s"].to_numpy(dtype=np.float64)
        size_s = np.minimum(size_s, step_s - _median(steps, step_s, by_rung=True))
    return _events(steps, size_s, size_s > np.maximum(least, NOISE * deviation))


def saving_events(steps: pd.DataFrame) -> pd.DataFrame:
    """What was saved between the script's steps, as hooks saw it."""
    saved = np.minimum(steps["saved_s"].to_numpy(dtype=np.float64), _other(steps))
    return _events(steps, saved, saved > LONG_S)


def evaluation_events(steps: pd.DataFrame) -> pd.DataFrame:
    """The rest of what hooks saw beside training: other loaders, forwards without gradients."""
    other = _other(steps) - steps["saved_s"].to_numpy(dtype=np.float64)
    return _events(steps, other, other > LONG_S)


def pass_starts(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps that began a pass over the training data, but for the first of a launch."""
    here = steps["pass_started"].to_numpy() > 0
    here &= steps["step"].to_numpy() > 0
    return steps.loc[here, ["launch", "rank", "step"]]


def after_backward_s(launches: Sequence[MeasuredLaunch], steps: pd.DataFrame) -> Array:
    """What each step's time after the backward has beyond the usual: others wait a step later."""
    if _on_device(launches):
        return np.zeros(len(steps))
    after = steps["after_backward_s"].to_numpy(dtype=np.float64)
    beyond: Array = np.maximum(0.0, after - _median(steps, after))
    return beyond


def _own_s(launches: Sequence[MeasuredLaunch], steps: pd.DataFrame) -> Array:
    own = _before_forward_s(launches, steps)
    if _on_device(launches):  # the host may wait there for the device, and that for other ranks
        return own
    before, after, met = (
        steps[name].to_numpy(dtype=np.float64)
        for name in ("before_backward_s", "after_backward_s", "met_s")
    )
    whole: Array = np.maximum(0.0, own + before + after - met)
    return whole


def _before_forward_s(launches: Sequence[MeasuredLaunch], steps: pd.DataFrame) -> Array:
    between = steps["between_s"].to_numpy(dtype=np.float64)
    fetches = [m.record.loop.fetches_per_step for m in launches if m.record is not None]
    if not fetches or max(fetches) > ONE_FETCH:
        return between
    waited = steps["data_wait_s"].to_numpy(dtype=np.float64) + _other(steps)
    to_forward = steps["forward_began_s"].to_numpy(dtype=np.float64) - waited
    own: Array = np.fmax(between, to_forward)
    return own


def _other(steps: pd.DataFrame) -> Array:
    values: Array = steps["other_s"].to_numpy(dtype=np.float64)
    return values


def _on_device(launches: Sequence[MeasuredLaunch]) -> bool:
    records = [m.record for m in launches if m.record is not None]
    return any(not info.device.startswith("cpu") for record in records for info in record.ranks)


def usual_step_s(steps: pd.DataFrame) -> float:
    """The median step, over all rungs and ranks."""
    return float(steps["step_s"].median()) if len(steps) else 0.0


def _median(steps: pd.DataFrame, values: Array, *, by_rung: bool = False) -> Array:
    keys = [steps["rank"], steps["rung"]] if by_rung else [steps["rank"]]
    medians = pd.Series(values, index=steps.index).groupby(keys, observed=True).transform("median")
    return medians.to_numpy(dtype=np.float64)


def _events(steps: pd.DataFrame, size_s: Array, keep: Bools) -> pd.DataFrame:
    columns = ["launch", "rank", "step", "pass_started"]
    # The first step of a launch holds what a script does once.
    keep = keep & (steps["step"].to_numpy() > 0)
    return steps.loc[keep, columns].assign(size_s=size_s[keep])


def lengths(steps: pd.DataFrame) -> Mapping[tuple[int, int], int]:
    """(launch, rank) -> steps that it made."""
    ends = steps.groupby(["launch", "rank"], as_index=False)["step"].max()
    rows = ends[["launch", "rank", "step"]].to_numpy(dtype=np.int64).tolist()
    return {(launch, rank): step + 1 for launch, rank, step in rows}
