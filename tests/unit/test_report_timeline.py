"""The Chrome trace of a result."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from simulation import Job, swept

from sfbench.collect.result import load_result
from sfbench.common.errors import ResultError
from sfbench.common.schema import SweepResult
from sfbench.report.timeline import trace, write_timeline

GOLDEN = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"
STEP_S, STALL_S = 0.03, 0.25


@pytest.fixture(scope="module")
def measured() -> tuple[SweepResult, pd.DataFrame]:
    """Two ranks, of which rank 0 stops every 10 steps, with all that the host sees."""
    job = Job(stall=lambda rank, step: STALL_S if rank == 0 and step and step % 10 == 0 else 0.0)
    analysis, _ = swept(job, seed=1, launches=1, seconds=3.0)
    steps = analysis.steps.copy()
    whole = steps["step_s"] + steps["stall_s"]
    steps["host_s"] = 1000.0 + steps["start_s"]
    steps["data_wait_s"] = 0.002
    steps["forward_began_s"] = steps["between_s"] + 0.003
    steps["forward_ended_s"] = steps["between_s"] + 0.008
    steps["update_ended_s"], steps["update_s"] = whole, 0.001
    return replace(load_result(GOLDEN), points=analysis.points), steps


def events(document: Any) -> list[Any]:
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def test_each_step_of_each_rank_is_there_with_its_parts_inside(
    measured: tuple[SweepResult, pd.DataFrame],
) -> None:
    result, steps = measured
    found = events(trace(result, steps))
    launch = result.points[-1].launches[0].launch
    rows = steps[steps["launch"] == launch]

    whole = [event for event in found if event["name"].startswith("step ")]
    assert len(whole) == len(rows)
    assert {event["tid"] for event in whole} == {0, 1}
    assert {event["cat"] for event in whole} == {"train", "cached", "unsynced", "solo"}
    assert min(event["ts"] for event in whole) == 0.0
    names = {event["name"] for event in found} - {event["name"] for event in whole}
    assert {"stall", "data", "forward", "backward and waiting for others", "update"} <= names
    for event in found:
        inside = [
            w for w in whole
            if w["tid"] == event["tid"] and w["ts"] - 1 <= event["ts"]
            and event["ts"] + event["dur"] <= w["ts"] + w["dur"] + 1
        ]  # fmt: skip
        assert inside, event


def test_only_the_rank_that_stalls_has_the_stall(
    measured: tuple[SweepResult, pd.DataFrame],
) -> None:
    stalls = [event for event in events(trace(*measured)) if event["name"] == "stall"]

    assert stalls
    assert {event["tid"] for event in stalls} == {0}
    assert all(event["dur"] == pytest.approx(1e6 * STALL_S, rel=0.01) for event in stalls)


def test_it_is_json_that_is_read_again(
    measured: tuple[SweepResult, pd.DataFrame], tmp_path: Path
) -> None:
    write_timeline(*measured, tmp_path / "trace.json")
    document = json.loads((tmp_path / "trace.json").read_text())
    assert document["otherData"]["devices"] == 2


def test_an_older_result_has_none(
    measured: tuple[SweepResult, pd.DataFrame], tmp_path: Path
) -> None:
    result, steps = measured
    with pytest.raises(ResultError, match=r"lacks host_s; .* Measure again"):
        write_timeline(result, steps.drop(columns="host_s"), tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())
