"""host-contention: for cores, for memory, or for neither."""

from __future__ import annotations

import pytest
from ladder import Times, diagnosed, launched, load, loop

ID = "host-contention"
CROWDED = Times(cached=[0.2] * 4, unsynced=[0.2] * 4, solo=[0.1] * 4)
"""Twice as slow beside the others."""


def test_ranks_that_wait_for_cores() -> None:
    # GIVEN 4 ranks that each keep a core busy for 100 ms, on 2 cores
    loads = tuple(
        load(
            r,
            cpu_s={"unsynced": 0.1, "solo": 0.1},
            delay_s={"unsynced": 0.1, "solo": 0.0},
            wall_s=0.2,
        )
        for r in range(4)
    )
    result = diagnosed(launched(0, CROWDED, loads=loads, loop=loop(loader_workers=1)), cores=2)
    found = result.only(ID, 4)
    # THEN half of the step is lost; 2 ranks would fit
    assert (found.severity, found.rank) == ("bottleneck", None)
    assert found.regain.value == pytest.approx(0.5, abs=1e-6)
    assert found.evidence["limit"] == "cores"
    assert found.evidence["threads_and_workers_on_host"] == 8
    assert found.evidence["oversubscribed"] is True
    assert found.evidence["best_possible_efficiency"] == 0.5
    assert found.evidence["without_core_s_per_step"] == 0.1
    assert found.advice[0] == (
        "Run at most 2 ranks on a host of 2 cores, or take work off the training threads: 4 ranks "
        "with 1 thread and 1 loader worker each want 8 cores, and the host has 2. Each rank waits "
        "100 ms of a step for a core."
    )


def test_the_same_work_that_takes_more_time_on_a_core_is_memory() -> None:
    loads = tuple(load(r, cpu_s={"unsynced": 0.2, "solo": 0.1}) for r in range(4))
    found = diagnosed(launched(0, CROWDED, loads=loads)).only(ID, 4)
    assert found.evidence["limit"] == "memory"
    assert "memory bandwidth" in found.advice[0]


def test_neither_is_said_to_be_unknown() -> None:
    loads = tuple(load(r, cpu_s={"unsynced": 0.1, "solo": 0.1}) for r in range(4))
    found = diagnosed(launched(0, CROWDED, loads=loads)).only(ID, 4)
    assert found.evidence["limit"] == "unknown"
    assert "not for cores" in found.advice[0]


def test_a_control_group_that_allows_less_than_there_is() -> None:
    found = diagnosed(launched(0, CROWDED), cores=8, quota=3.0).only(ID, 4)
    assert found.evidence["cores_allowed_by_control_group"] == 3.0
    assert any("allows 3 of 8 cores" in line for line in found.advice)
