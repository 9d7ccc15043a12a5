"""Batches of unlike length: the rungs are compared on batches as long as the job's."""

from __future__ import annotations

import numpy as np
import pytest
from ladder import CYCLES, STEPS, Times, launched
from synthetic import launch_record, machine, sweep_plan

from sfbench.analyze.points import analyze
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import LADDER, RUNGS, STEP_COLUMNS, Share

PER_NUMBER_S = 1e-4
RING = 32
COLUMN = {name: place for place, name in enumerate(STEP_COLUMNS)}


def launch(
    index: int, seed: int, *, load_s: float, told: bool, power: float = 1.0
) -> MeasuredLaunch:
    """One device on batches of 10 to 90 numbers; a number takes 0.1 ms, a batch ``load_s``.

    The first ``RING`` batches, alike in all launches, are replayed; the job goes on to others.
    ``told``: lengths are known. ``power``: of the length that a step's time grows with.
    """
    ring = np.random.default_rng(seed).integers(10, 91, RING).astype(float)
    others = np.random.default_rng([seed, index])
    made = launched(index, Times(cached=[1.0], data_wait=[0.0]))
    assert made.steps is not None
    rows = made.steps
    for row in rows:
        place = int(row[COLUMN["cycle"]]) * STEPS + int(row[COLUMN["step"]]) % STEPS
        train = row[COLUMN["rung"]] == RUNGS.index("train")
        length = float(others.integers(10, 91)) if train else ring[place % RING]
        row[COLUMN["step_s"]] = PER_NUMBER_S * 50 * (length / 50) ** power + train * load_s
        row[COLUMN["step_s"]] *= 1 + 0.01 * others.standard_normal()
        row[COLUMN["data_wait_s"]] = train * load_s
        row[COLUMN["elements"]] = length if told else 0
    return MeasuredLaunch(
        plan=made.plan, outcome=made.outcome, record=launch_record(1, kept_batches=RING), steps=rows
    )


def data_share(seed: int, *, load_s: float, told: bool = True, power: float = 1.0) -> Share:
    launches = [launch(n, seed, load_s=load_s, told=told, power=power) for n in range(8)]
    plan = sweep_plan(rungs=LADDER, warmup_steps=0, devices=(1,))
    [point] = analyze(plan, machine(2), launches, step_frame(launches)).points
    assert point.time_share is not None
    total = sum(point.time_share.of(name).value or 0.0 for name in ("compute", "data"))
    assert total == pytest.approx(1.0, abs=0.02)
    return point.time_share.data


@pytest.mark.parametrize("power", [1.0, 2.0])
@pytest.mark.parametrize(("load_s", "truth"), [(0.0, 0.0), (0.00112, 0.183)])
def test_loading_is_told_from_the_length_of_batches(
    load_s: float, truth: float, power: float
) -> None:
    usual = (1 + 0.21 * (power - 1)) * 0.005  # mean of (length / 50) ** 2 is 1.21
    truth = load_s / (usual + load_s)
    for seed in range(6):
        share = data_share(seed, load_s=load_s, power=power)
        assert share.value == pytest.approx(truth, abs=0.015)
        assert share.low is not None
        assert share.high is not None
        assert share.low - 0.005 <= truth <= share.high + 0.005
        assert share.high - share.low < 0.06


def test_what_no_length_tells_is_in_the_interval() -> None:
    # GIVEN batches that differ as much, but whose lengths nobody knows
    shares = [data_share(seed, load_s=0.00112, told=False) for seed in range(20)]
    truth = 0.00112 / 0.00612
    # THEN 32 kept batches say little, and 8 launches of the same batches no more
    assert sum((s.low or 0) <= truth <= (s.high or 0) for s in shares) >= 18
    assert all((s.high or 0) - (s.low or 0) > 0.15 for s in shares)


def test_cycles_are_as_many_as_the_ring_needs() -> None:
    assert CYCLES * STEPS >= RING
