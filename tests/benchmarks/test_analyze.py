"""Budget: analyze 512 ranks x 2,000 steps in at most 5 s and 1 GiB, and find stalls in 20 s."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from sfbench.analyze.points import Analysis, analyze
from sfbench.analyze.stalls import find_stalls
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import LADDER, RUNGS, STEP_COLUMNS, LaunchRecord, LoopInfo, RankInfo
from sfbench.launch.outcome import LaunchOutcome
from sfbench.plan.machine import Machine
from sfbench.plan.sweep_plan import LaunchPlan, SweepPlan, Target

RANKS = 512
STEPS = 2000
CYCLES = 10
BUDGET_S = 5.0
STALLS_BUDGET_S = 20.0
BUDGET_BYTES = 2**30

LOOP = LoopInfo(
    samples_from="indices",
    fetches_per_step=1.0,
    batch_per_fetch=32.0,
    loader_workers=4,
    prefetch_factor=2,
    persistent_workers=True,
    pin_memory=True,
    optimizer="SGD",
    backend="nccl",
    wrapper="ddp",
    parameters=25_000_000,
    gradient_bytes=100_000_000,
)


def launch(index: int, devices: int, steps: int) -> MeasuredLaunch:
    """A launch with every rung: of each cycle's steps half are train, the rest in equal parts."""
    rows = np.zeros((devices, steps, len(STEP_COLUMNS)))
    column = {name: rows[:, :, i] for i, name in enumerate(STEP_COLUMNS)}
    step = np.arange(steps)
    place = step * CYCLES % steps / steps  # 0..1 within the cycle
    rung = np.select([place < 0.5, place < 0.7, place < 0.9], [0, 1, 2], RUNGS.index("solo"))
    cycle = step * CYCLES // steps
    column["rank"][:] = np.arange(devices)[:, None]
    column["step"][:], column["cycle"][:], column["rung"][:] = step, cycle, rung
    column["block"][:] = cycle * len(LADDER) + rung
    column["turn"][:] = np.where(rung == 3, column["rank"], -1)
    column["measured"][:] = 1
    noise = np.random.default_rng(index).standard_normal((devices, steps))
    column["step_s"][:] = 0.1 * np.exp(0.02 * noise) * np.array([1.2, 1.1, 1.0, 0.95])[rung]
    column["samples"][:] = 32
    ranks = tuple(
        RankInfo(rank=r, local_rank=r % 8, host=f"node{r // 8}", device="cuda", pid=r, threads=1)
        for r in range(devices)
    )
    return MeasuredLaunch(
        plan=LaunchPlan(
            index=index, round=0, devices=devices, cores=None, seconds=10.0, seed=index
        ),
        outcome=LaunchOutcome(
            status="ok",
            record=Path("record.npz"),
            error=None,
            notes=(),
            start_s=0.0,
            wall_s=1.0,
        ),
        record=LaunchRecord(
            world_size=devices,
            warmup_steps=0,
            ended_early=False,
            stop_reason="seconds",
            ranks=ranks,
            loop=LOOP,
            unavailable={},
        ),
        steps=rows.reshape(-1, len(STEP_COLUMNS)),
    )


def plan() -> SweepPlan:
    return SweepPlan(
        target=Target(name="big", script=Path("/scripts/big.py"), is_workload=False),
        devices=(1, RANKS),
        device_type="cuda",
        rungs=LADDER,
        name="big",
        output=Path("results"),
        nnodes=RANKS // 8,
    )


def analyzed() -> Analysis:
    launches = [launch(0, 1, STEPS), launch(1, RANKS, STEPS)]
    return timed(launches)


def timed(launches: list[MeasuredLaunch]) -> Analysis:
    machine = Machine(cores=tuple(range(64)), quota=None, gpus=("GPU",) * 8)
    return analyze(plan(), machine, launches, step_frame(launches))


def test_time(benchmark: BenchmarkFixture) -> None:
    launches = [launch(0, 1, STEPS), launch(1, RANKS, STEPS)]

    analysis = benchmark.pedantic(timed, args=(launches,), rounds=3, warmup_rounds=1)

    assert [point.status for point in analysis.points] == ["ok", "ok"]
    assert analysis.points[1].time_share is not None
    assert benchmark.stats.stats.max <= BUDGET_S


def test_time_of_stalls(benchmark: BenchmarkFixture) -> None:
    # GIVEN a rank that stops every 10 steps, and all ranks now and then
    one = launch(1, RANKS, STEPS)
    assert one.steps is not None
    column = {name: one.steps[:, place] for place, name in enumerate(STEP_COLUMNS)}
    chance = np.random.default_rng(2).random(len(one.steps))
    lost_s = np.where(chance < 0.005, 0.05, 0.0)
    lost_s += np.where((column["rank"] == 0) & (column["step"] % 10 == 0), 0.25, 0.0)
    for name in ("between_s", "step_s"):
        column[name] += lost_s
    frame = step_frame([one])

    found = benchmark.pedantic(find_stalls, args=([one], frame), rounds=1).found

    assert [(s.rank, s.period_steps) for s in found if s.per == "steps"] == [(0, 10)]
    assert benchmark.stats.stats.max <= STALLS_BUDGET_S


@pytest.mark.benchmark
def test_memory(benchmark: BenchmarkFixture) -> None:
    # the peak of a process of its own, its launches and libraries included
    code = (
        "import resource, test_analyze as t; t.analyzed();"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}

    def peak_bytes() -> int:
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    peak = benchmark.pedantic(peak_bytes, rounds=1)

    benchmark.extra_info["peak_bytes"] = peak
    assert peak <= BUDGET_BYTES
