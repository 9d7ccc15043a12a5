"""A few steps of all ranks side by side, around the largest stall: for the report's strip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from sfbench.common.schema import Stretch, StretchPart

MOST_STEPS, MOST_RANKS = 12, 8
BEFORE = 4
"""Steps shown before the one that stands out."""
OWN_STALL = 0.5
"""A rank stalls itself where its own time is this part of what the step lost; else it waits."""
DIGITS = 5


def stretch(steps: pd.DataFrame) -> Stretch | None:
    """Of the steps of one device count, warmup labelled; None where there are none to show."""
    rows = steps[(steps["measured"] & (steps["rung"] == "train") & ~steps["warmup"]).to_numpy()]
    if not len(rows):
        return None
    lost = rows["stall_s"].to_numpy() + rows["other_s"].to_numpy()
    chosen = rows.iloc[int(lost.argmax())]
    same = (rows["launch"] == chosen["launch"]) & (rows["block"] == chosen["block"])
    block = rows[(same & (rows["rank"] < MOST_RANKS)).to_numpy()].sort_values(["rank", "job_step"])
    first = max(int(block["job_step"].min()), int(chosen["job_step"]) - BEFORE)
    shown = block[block["job_step"].between(first, first + MOST_STEPS - 1).to_numpy()]
    began_s = float(shown["host_s"].min())
    found = [
        (int(row["rank"]), kind, *_rounded(float(row["host_s"]) - began_s, begin, end))
        for row in shown.to_dict("records")
        for kind, begin, end in parts_of(row)
        if end > begin
    ]
    ranks, kinds, begins, ends = zip(*found, strict=True) if found else ((), (), (), ())
    return Stretch(rank=ranks, part=kinds, began_s=begins, ended_s=ends)


def parts_of(row: Mapping[Any, Any]) -> Iterator[tuple[StretchPart, float, float]]:
    """Kind, begin and end of a step's parts in seconds after the step began, on the host."""
    own, other = float(row["between_s"]), float(row["other_s"])
    yield "stall" if _stalls(row, own) else "between", 0.0, own
    yield "other", own, own + other
    yield "data", own + other, own + other + float(row["data_wait_s"])
    began, ended = float(row["forward_began_s"]), float(row["forward_ended_s"])
    if np.isnan(began):
        return
    updated = float(row["update_ended_s"])
    update = updated - (0.0 if np.isnan(row["update_s"]) else float(row["update_s"]))
    before, after = float(row["before_backward_s"]), float(row["after_backward_s"])
    yield "forward", began, ended
    backward = ended
    if _stalls(row, before):
        backward = ended + before
        yield "stall", ended, backward
    if _stalls(row, after):
        yield "backward", backward, update - after
        yield "stall", update - after, update
    else:
        yield "backward", backward, update
    yield "update", update, updated


def _stalls(row: Mapping[Any, Any], own_s: float) -> bool:
    return bool(row["stall_s"] > 0 and own_s >= OWN_STALL * row["stall_s"])


def _rounded(at: float, begin: float, end: float) -> tuple[float, float]:
    return round(at + begin, DIGITS), round(at + end, DIGITS)
