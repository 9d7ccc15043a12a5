"""What a supervisor makes of a record that comes before its ranks have done their part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sfbench.common.schema import RankJob
from sfbench.launch import supervisor
from sfbench.launch.stop_rules import LEAVE_S, StopCause
from sfbench.launch.supervisor import Supervisor
from sfbench.plan.sweep_plan import NodeJob
from sfbench.protocol import record_file
from sfbench.protocol.heartbeat import STEPS, Heartbeat

TIMEOUT_S = 300.0


class Clock:
    """A monotonic clock that the test holds."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Process:
    """A rank that runs for ever."""

    exitcode = None
    pid = None

    def __init__(self, sentinel: int) -> None:
        self.sentinel = sentinel

    def join(self, timeout: float) -> None:
        """It does not end."""


@pytest.fixture
def silent() -> Iterator[tuple[int, int]]:
    """Two file descriptors that never become readable."""
    read, write = os.pipe()
    again = os.dup(read)
    yield read, again
    for one in (read, again, write):
        os.close(one)


@pytest.fixture
def watched(
    tmp_path: Path, silent: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, ...]:
    """A supervisor of one rank that has left a record, the rank's heartbeat, and the clock."""
    clock = Clock()
    monkeypatch.setattr(supervisor, "time", clock)
    job = NodeJob(
        job=RankJob(script="train.py", launch_dir=str(tmp_path)),
        nproc=1,
        log_dir=tmp_path / "logs",
        timeout_s=TIMEOUT_S,
        run_id="run",
    )
    over = Supervisor(job, lambda progress: None, silent[0])
    over.watch_over([Process(silent[1])])  # type: ignore[list-item]
    (tmp_path / record_file.FILE_NAME).touch()
    beat = Heartbeat(tmp_path, 0)
    beat.phase("measuring")
    return over, beat, clock


def test_a_rank_that_measures_on_after_its_first_record_is_given_its_time(watched: Any) -> None:
    over, beat, clock = watched
    # GIVEN steps of 8 s on other batch sizes, for longer than a rank may take to leave
    for step in range(4):
        beat.row[STEPS] = step
        assert over.tick() is None
        clock.now_s += 8.0
    # WHEN it is done THEN it may still take its time to leave, and no longer
    beat.phase("done")
    assert over.tick() is None
    clock.now_s += LEAVE_S
    assert over.tick() is None
    clock.now_s += 0.1
    end = over.tick()
    assert end.cause is StopCause.OVERSTAYED
    assert end.complete


def test_one_that_stands_still_after_its_first_record_keeps_what_it_has(watched: Any) -> None:
    over, _, clock = watched
    assert over.tick() is None
    clock.now_s += TIMEOUT_S + 0.1
    end = over.tick()
    assert end.cause is StopCause.TIMEOUT
    assert end.complete
