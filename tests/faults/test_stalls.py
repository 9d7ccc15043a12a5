"""Jobs that stop between their steps, beside a stopwatch of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from beside_stopwatch import JOBS, StallingJob, compare, largest, sweep
from matrix import BURSTS, STALL

OUTSIDE_WITHIN = 0.1
"""What an evaluation takes. A checkpoint is not held to it: the page cache takes those of short
launches, and a long job waits for the disk."""


def test_evaluation_without_a_loader_of_its_own_is_told_from_training(tmp_path: Path) -> None:
    result = sweep(tmp_path, "eval", devices=(2,), seconds=5.0, rounds=1)

    stall = largest(result.points[0])
    assert (stall.kind, stall.rank, stall.period_steps) == ("evaluation", 0, 25)
    assert re.fullmatch(r"stalling.py:\d+", stall.line)
    first = result.diagnoses[0]
    assert (first.id, first.rank, first.severity) == (STALL, 0, "bottleneck")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["before-update", "barrier"])
def test_the_rank_that_stops_is_named_wherever_others_wait(kind: str, tmp_path: Path) -> None:
    result = sweep(tmp_path, kind, devices=(2,), seconds=5.0, rounds=1)

    stall = largest(result.points[0])
    assert (stall.kind, stall.rank, stall.period_steps) == ("other", 0, 10)
    assert stall.size_s.value == pytest.approx(0.25, rel=0.1)
    assert re.fullmatch(r"stalling.py:\d+", stall.line)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.kind)
def test_rate_rank_period_and_kind_are_those_of_the_job(job: StallingJob, tmp_path: Path) -> None:
    for one in compare(job, tmp_path):
        print(one)
        assert one.cause_right, str(one)
        assert one.rate_right is not False, str(one)
        if one.outside_off is not None and job.does != "saving" and one.rate_right:
            assert abs(one.outside_off) <= OUTSIDE_WITHIN, str(one)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_bursts_are_named_no_stall(tmp_path: Path) -> None:
    result = sweep(tmp_path, BURSTS.args[0], devices=(1, 2), seconds=20.0)

    assert not [d for d in result.diagnoses if d.id == STALL]
    assert not [stall for point in result.points for stall in point.stalls if stall.sure]
