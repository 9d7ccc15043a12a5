"""Warmup and trends found after the fact."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from synthetic import StepTable, measured

from sfbench.analyze.monotone import change, correlation, kendall_s, trend_p
from sfbench.analyze.steps import job_steps
from sfbench.analyze.warmup import Labelled, label_warmup, trending, warm_blocks
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch

Array = np.ndarray[tuple[int], np.dtype[np.float64]]

RECORDED = Path(__file__).parent / "data" / "stationary_blocks.txt"
"""Mean step time of each train block, in s, of stationary loops on busy machines: one launch a
line, the device count first."""


def label(*launches: MeasuredLaunch) -> Labelled:
    steps = step_frame(launches)
    return label_warmup(steps, job_steps(steps))


def trained(devices: int, blocks: list[float]) -> StepTable:
    table = StepTable(devices)
    for step_s in blocks:
        table.block("train", [step_s] * 5)
    return table


def wandering(rng: np.random.Generator, length: int, rho: float, sd: float = 0.15) -> Array:
    """Stationary logarithms of step times whose neighbours have the correlation ``rho``."""
    values = rng.standard_normal(length)
    for place in range(1, length):
        values[place] = rho * values[place - 1] + math.sqrt(1 - rho * rho) * values[place]
    answer: Array = sd * values
    return answer


@pytest.mark.parametrize("launches", [1, 6])
def test_rungs_that_come_before_train_are_no_warmup_for_that(launches: int) -> None:
    # GIVEN short launches of one cycle, whose train block comes last
    tables = [StepTable(2) for _ in range(launches)]
    for table in tables:
        table.warmup(3).block("cached", [1.0] * 4, cycle=0)
        table.solo([1.0, 1.0], cycle=0).block("unsynced", [1.0] * 4, cycle=0)
        table.block("train", [1.0] * 8, cycle=0)
    found = label(*(measured(index, table) for index, table in enumerate(tables)))
    # THEN only what came before the first block is warmup
    assert found.steps["warmup"].sum() == 2 * 3 * launches
    assert not found.job["warmup"].any()


def test_all_rungs_before_the_cut_are_warmup() -> None:
    # GIVEN a first cycle in which everything is slow
    table = StepTable(2)
    for cycle in range(6):
        slow = 3.0 if cycle == 0 else 1.0
        table.block("cached", [slow] * 10, cycle=cycle)
        table.block("train", [slow] * 10, cycle=cycle)
    found = label(measured(0, table))
    warm = found.steps.loc[found.steps["warmup"], ["rung", "cycle"]].drop_duplicates()
    # THEN all before the second train block is warmup, on every rank, and nothing is lost
    assert found.unsteady == ()
    assert sorted(map(tuple, warm.to_numpy().tolist())) == [
        ("cached", 0),
        ("cached", 1),
        ("train", 0),
    ]
    assert len(found.steps) == 240
    assert found.job["warmup"].sum() == 30


def test_launches_of_a_device_count_have_the_same_warmup() -> None:
    # GIVEN four launches at 1 device whose first block is slow, and two at 2 devices without
    rng = np.random.default_rng(2)
    slow = [[1.5, *(1 + 0.05 * rng.standard_normal(5))] for _ in range(4)]
    launches = [measured(i, trained(1, blocks)) for i, blocks in enumerate(slow)]
    even = [measured(i, trained(2, [1.0, 1.01, 0.99, 1.0, 1.02, 1.0])) for i in (4, 5)]
    by_launch = label(*launches, *even).steps.groupby("launch")["warmup"].sum()
    assert by_launch.to_dict() == {0: 5, 1: 5, 2: 5, 3: 5, 4: 0, 5: 0}


def test_one_slow_start_among_many_launches_stays() -> None:
    # GIVEN eight launches, in one of which the machine was busy at first
    rng = np.random.default_rng(2)
    series = [0.03 * rng.standard_normal(6) for _ in range(8)]
    series[3][0] += 0.8
    assert warm_blocks(series) == 0


def test_a_trend_of_the_job_is_named_in_all_its_launches() -> None:
    # GIVEN steps that get slower in each launch at 2 devices, and steady ones at 1
    rng = np.random.default_rng(3)

    def launch(devices: int, slope: float) -> StepTable:
        return trained(
            devices, [(1 + slope * i) * (1 + 0.02 * rng.standard_normal()) for i in range(4)]
        )

    launches = [measured(i, launch(1 + i % 2, 0.15 * (i % 2))) for i in range(8)]
    assert label(*launches).unsteady == (1, 3, 5, 7)


def test_a_trend_of_one_launch_is_enough_where_there_is_one() -> None:
    assert label(measured(3, trained(2, list(np.linspace(1.0, 1.4, 7))))).unsteady == (3,)
    # BUT three blocks in rising order are chance: kept, and told
    short = label(measured(3, trained(2, [1.0, 1.2, 1.4])))
    assert (short.unsteady, short.restless) == ((), (3,))


def test_a_machine_that_was_slow_for_a_while_loses_no_launch() -> None:
    # GIVEN eight launches, two of them half as fast from their middle on
    rng = np.random.default_rng(5)
    series = [0.03 * rng.standard_normal(8) for _ in range(8)]
    for slow in (2, 5):
        series[slow][4:] += math.log(2)
    assert not trending(series)


def test_stalls_at_epoch_starts_belong_to_the_job() -> None:
    # GIVEN a step of ten times the length every 20 steps
    table = StepTable(1)
    for _ in range(20):
        table.block("train", [10.0] + [1.0] * 9)
        table.block("train", [1.0] * 10)
    found = label(measured(0, table))
    assert found.unsteady == ()
    assert not found.steps["warmup"].any()


@pytest.mark.parametrize("launches", [1, 3, 6])
@pytest.mark.parametrize("blocks", [3, 6, 12])
@pytest.mark.parametrize("rho", [0.0, 0.3])
def test_stationary_series_are_kept(launches: int, blocks: int, rho: float) -> None:
    # GIVEN 150 points without a trend; at the stated level 0.45 are refused
    rng = np.random.default_rng(launches + blocks)
    refused = 0
    for _ in range(150):
        series = [wandering(rng, blocks, rho) for _ in range(launches)]
        cut = warm_blocks(series)
        refused += trending([values[cut:] for values in series])
    # THEN with a true rate of 1 % more than 5 would come once in 1,000 runs
    assert refused <= 5


def test_recorded_series_are_kept_in_any_order() -> None:
    # GIVEN launches of stationary loops as measured, and each in 40 random orders
    rng = np.random.default_rng(0)
    lines = [line.split() for line in RECORDED.read_text().splitlines()]
    series = [np.log(np.array(line[1:], dtype=np.float64)) for line in lines]
    orders = [values[rng.permutation(len(values))] for values in series for _ in range(40)]
    refused = sum(trending([values[warm_blocks([values]) :]]) for values in (*series, *orders))
    # THEN at most 1 % are refused
    assert refused <= 0.01 * len(orders)
    assert len(series) >= 8


def test_the_distribution_of_s_is_counted_out() -> None:
    # GIVEN four values: S is 6 or -6 in 2 of 24 orders, at least 4 away from 0 in 8
    assert trend_p([np.array([1.0, 2.0, 3.0, 4.0])]) == pytest.approx(2 / 24)
    assert kendall_s(np.array([1.0, 2.0, 4.0, 3.0])) == 4
    # AND two series of three: both rising or both falling, 2 of 36
    rising = np.array([1.0, 2.0, 3.0])
    assert trend_p([rising, rising + 1]) == pytest.approx(2 / 36)
    assert trend_p([]) == trend_p([np.array([1.0])]) == 1.0


def test_change_is_that_of_the_line() -> None:
    assert change(np.array([0.0, 0.1, 0.2, 9.0, 0.4])) == pytest.approx(0.4)


def test_correlation_of_neighbours() -> None:
    rng = np.random.default_rng(8)
    for rho in (0.0, 0.5):
        values = [wandering(rng, 200, rho) for _ in range(4)]
        assert correlation(values) == pytest.approx(rho, abs=0.12)
