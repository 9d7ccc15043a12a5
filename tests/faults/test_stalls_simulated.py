"""How often stalls are named, over made-up step times: the product's schedule and its analysis."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from simulation import Job, swept, true_step_s

STALL = "periodic-stall"
SEEDS = 40
NAMED = 38
COVERED = 0.93
CASES = ((0.05, 10), (0.25, 10), (0.5, 25), (1.0, 50), (2.0, 100))


def every(size_s: float, period: int) -> Callable[[int, int], float]:
    return lambda rank, step: size_s if rank == 0 and step and step % period == 0 else 0.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rank_and_period_are_named_and_the_truth_is_covered() -> None:
    covered = tried = 0
    missed = []
    for size_s, period in CASES:
        job = Job(stall=every(size_s, period), compute=1.0)
        truth = {devices: true_step_s(job, devices, period) for devices in (1, 2)}
        named, others, here = 0, [], 0
        for seed in range(SEEDS):
            analysis, diagnoses = swept(job, seed, seconds=4.0)
            found = [d for d in diagnoses if d.id == STALL and d.devices == 2]
            named += [(d.rank, d.evidence["period_steps"]) for d in found] == [(0, period)]
            others += [d.id for d in diagnoses if d.id != STALL and d.severity == "bottleneck"]
            for point in analysis.points:
                step_s = point.step_s
                assert step_s is not None
                assert step_s.low is not None
                assert step_s.high is not None
                here += step_s.low <= truth[point.devices] <= step_s.high
        print(
            f"{size_s} s every {period} steps: named {named} of {SEEDS}, covered {here}, {others}"
        )
        covered, tried = covered + here, tried + 2 * SEEDS
        if named < NAMED or others:
            missed.append((size_s, period, named, others))

    assert missed == []
    assert covered >= COVERED * tried, f"{covered} of {tried}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_stall_is_named_where_there_is_none() -> None:
    for job in (Job(), Job(burst=0.02, burst_s=0.2), Job(burst=0.1, burst_s=0.02)):
        for seed in range(SEEDS):
            _, diagnoses = swept(job, seed, seconds=4.0)
            assert not [d for d in diagnoses if d.id == STALL]
