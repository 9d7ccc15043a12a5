"""Ranks x time as a Chrome trace: what ui.perfetto.dev and chrome://tracing open.

One launch at the largest device count: each step of each rank with its parts, as the host saw them,
on every rung. Times are those of the rank's host; ranks of one host share a clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sfbench.analyze.stretch import parts_of
from sfbench.common.errors import ResultError
from sfbench.common.schema import Point, StretchPart, SweepResult
from sfbench.common.units import things

NEEDED = (
    "host_s", "between_s", "forward_began_s", "forward_ended_s", "update_ended_s", "stall_s",
    "before_backward_s", "after_backward_s",
)  # fmt: skip
MICROSECONDS = 1e6
SHORTEST_S = 1e-6
"""Shorter parts are not drawn."""
NAMES: Mapping[StretchPart, str] = {
    "between": "between steps",
    "other": "evaluation or saving",
    "backward": "backward and waiting for others",
}
"""Of parts that are called otherwise."""

TraceEvent = dict[str, Any]


def write_timeline(result: SweepResult, steps: pd.DataFrame, place: Path) -> None:
    """Write the trace of a result; ``steps``: its step frame.

    Raises:
        ResultError: nothing was measured, or the result is older than the columns that it needs.
    """
    missing = [name for name in NEEDED if name not in steps.columns]
    if missing:
        raise ResultError(
            f"{result.name}: no timeline: steps.parquet lacks {', '.join(missing)}; it is of an "
            "older version. Measure again with `sfbench sweep`"
        )
    place.write_text(json.dumps(trace(result, steps)), encoding="utf-8")


def trace(result: SweepResult, steps: pd.DataFrame) -> Mapping[str, Any]:
    """The whole document."""
    good = [point for point in result.points if point.status == "ok"]
    if not good:
        raise ResultError(f"{result.name}: no timeline: nothing was measured")
    point = good[-1]
    launch = next(one.launch for one in point.launches if one.status == "ok")
    rows = steps[(steps["launch"] == launch).to_numpy()].sort_values(["rank", "step"])
    began_s = float(rows["host_s"].min())
    events = [event for row in rows.to_dict("records") for event in _of_step(row, began_s, point)]
    return {
        "traceEvents": [*_names(result, point, launch), *events],
        "displayTimeUnit": "ms",
        "otherData": {"name": result.name, "devices": point.devices, "launch": launch},
    }


def _names(result: SweepResult, point: Point, launch: int) -> Iterator[TraceEvent]:
    title = f"{result.name}: {things(point.devices, 'device')}, launch {launch}"
    yield {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": title}}
    for rank in point.ranks:
        name = f"rank {rank.rank} ({rank.device})"
        yield {
            "ph": "M", "pid": 0, "tid": rank.rank, "name": "thread_name", "args": {"name": name},
        }  # fmt: skip


def _of_step(row: Mapping[Any, Any], began_s: float, point: Point) -> Iterator[TraceEvent]:
    """The step, and its parts inside of it."""
    rank, at = int(row["rank"]), float(row["host_s"]) - began_s
    facts = {name: row[name] for name in ("rung", "block", "measured", "warmup", "samples")}
    facts = {name: _plain(value) for name, value in facts.items()}
    whole = float(row["update_ended_s"])
    yield _event(f"step {int(row['step'])}", str(row["rung"]), rank, (at, at + whole), facts)
    for name, begin, end in _parts(row, point):
        if end - begin >= SHORTEST_S:
            yield _event(name, name, rank, (at + begin, at + min(end, whole)), {})


def _parts(row: Mapping[Any, Any], point: Point) -> Iterator[tuple[str, float, float]]:
    """Name, begin and end in seconds after the step began."""
    for kind, begin, end in parts_of(row):
        name = _stall_name(row, point) if kind == "stall" else NAMES.get(kind, kind)
        yield name, begin, end


def _stall_name(row: Mapping[Any, Any], point: Point) -> str:
    mine = [s for s in point.stalls if s.rank in (None, row["rank"]) and s.line]
    lines = {s.line for s in mine if not s.period_steps or _due(row, s.period_steps)}
    return f"stall ({lines.pop()})" if len(lines) == 1 else "stall"


def _due(row: Mapping[Any, Any], period: int) -> bool:
    return int(row["step"]) % period in (0, 1, period - 1)


def _event(
    name: str, kind: str, rank: int, span: tuple[float, float], facts: TraceEvent
) -> TraceEvent:
    begin, end = span
    return {
        "name": name, "cat": kind, "ph": "X", "pid": 0, "tid": rank,
        "ts": round(begin * MICROSECONDS, 3),
        "dur": round(max(0.0, end - begin) * MICROSECONDS, 3),
        "args": facts,
    }  # fmt: skip


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
