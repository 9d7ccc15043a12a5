"""Jobs that stop between their steps, beside a stopwatch of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from matrix import BURSTS, STALL, STALLING

from sfbench.common.schema import LADDER, Point, Stall, SweepResult
from sfbench.plan.machine import this_machine
from sfbench.plan.sweep_plan import SweepPlan
from sfbench.plan.targets import resolve_target
from sfbench.run.observer import SilentObserver
from sfbench.run.sweep import run_sweep

WITHIN = 0.03
STEPS = 440


@dataclass(frozen=True)
class StallingJob:
    """What is known of it."""

    kind: str
    rank: int | None
    does: str
    periods: tuple[int, int]
    """At 1 and at 2 devices."""


JOBS = (
    StallingJob("epoch", None, "epoch-start", (40, 20)),
    StallingJob("stop", 0, "other", (10, 10)),
    StallingJob("eval-loader", 0, "evaluation", (25, 25)),
    StallingJob("eval", 0, "evaluation", (25, 25)),
    StallingJob("save", 0, "saving", (20, 20)),
)


def sweep(folder: Path, kind: str, **changes: object) -> SweepResult:
    plan = SweepPlan(
        target=resolve_target(str(STALLING), (kind, "0")),
        rungs=LADDER,
        name=kind,
        output=folder,
        **changes,  # type: ignore[arg-type]
    )
    return run_sweep(plan, this_machine(), SilentObserver(), command=kind).result


def stopwatch(kind: str, devices: int) -> tuple[float, float]:
    """Seconds per step of the training loop, and of what stands outside of it."""
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    command = (*launcher, f"--nproc-per-node={devices}", str(STALLING), kind, str(STEPS))
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=env)
    found = re.search(r"step_s (\S+) outside_s (\S+)", done.stdout)
    assert found is not None
    return float(found[1]), float(found[2])


def largest(point: Point) -> Stall:
    return max(point.stalls, key=lambda stall: stall.per_step_s.value)


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
    before = [stopwatch(job.kind, devices) for devices in (1, 2)]
    result = sweep(tmp_path, job.kind, devices=(1, 2), seconds=20.0)
    after = [stopwatch(job.kind, devices) for devices in (1, 2)]

    for place, point in enumerate(result.points):
        stall = largest(point)
        rank = job.rank if point.devices > 1 else None
        assert (stall.kind, stall.rank) == (job.does, rank)
        assert stall.period_steps == job.periods[place]
        assert point.step_s is not None
        step_s = (before[place][0] + after[place][0]) / 2
        outside_s = (before[place][1] + after[place][1]) / 2
        print(
            f"{job.kind} at {point.devices}: {point.step_s.value:.5f} s, {step_s:.5f} by stopwatch"
        )
        assert point.step_s.value == pytest.approx(step_s, rel=WITHIN)
        if outside_s > 0.001:
            assert stall.per_step_s.value == pytest.approx(outside_s, rel=0.1)
    assert {d.id for d in result.diagnoses if d.severity == "bottleneck"} == {STALL}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_bursts_are_named_no_stall(tmp_path: Path) -> None:
    result = sweep(tmp_path, BURSTS.args[0], devices=(1, 2), seconds=20.0)

    assert not [d for d in result.diagnoses if d.id == STALL]
    assert not [stall for point in result.points for stall in point.stalls if stall.sure]
