"""Time shares by the ladder of rungs, on step times worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import StepTable, measured

from sfbench.analyze.cycles import Cycles, cycles, filled_solo
from sfbench.analyze.intervals import Array
from sfbench.analyze.repeats import batch_steps
from sfbench.analyze.shares import Shares, time_shares
from sfbench.analyze.slow import pick_slow
from sfbench.analyze.steps import job_steps, rank_rows
from sfbench.collect.frames import step_frame
from sfbench.common.schema import STEP_COLUMNS, TimeShare

PARTS = ("compute", "host", "straggler", "jitter", "communication", "data")


def values(shares: TimeShare) -> list[float | None]:
    return [getattr(shares, part).value for part in PARTS]


def ladder(
    *, cycles_: int = 6, train: float, cached: float, unsynced: list[list[float]], solo: list[float]
) -> Cycles:
    """Cycles that are all alike; ``unsynced`` by step and rank."""
    table = StepTable(len(solo))
    for cycle in range(cycles_):
        table.block("train", [train] * 8, cycle=cycle)
        table.block("cached", [cached] * 4, cycle=cycle)
        table.block("unsynced", unsynced, cycle=cycle)
        table.solo(solo, cycle=cycle)
    steps = step_frame([measured(0, table)])
    return cycles(steps, job_steps(steps))


def shares_of(found: Cycles) -> Shares:
    shares = time_shares(found, {})
    assert shares is not None
    return shares


def test_data_communication_host_and_compute_are_told_apart() -> None:
    # GIVEN ranks alike: 40 ms alone, 42 together, 50 with sync, 60 with the loader
    found = ladder(train=0.060, cached=0.050, unsynced=[[0.042, 0.042]] * 4, solo=[0.040, 0.040])
    got = shares_of(found)
    assert values(got.seconds) == pytest.approx([0.040, 0.002, 0.0, 0.0, 0.008, 0.010])
    assert values(got.time_share) == pytest.approx([40 / 60, 2 / 60, 0.0, 0.0, 8 / 60, 10 / 60])
    assert (got.step_s, got.cycles, got.slow) == (pytest.approx(0.060), 6, None)


def test_ranks_whose_turns_alone_are_spread_over_two_cycles_are_joined_all_the_same() -> None:
    # GIVEN four ranks of which two run alone in each cycle, before the others go on with them
    table = StepTable(4).warmup(3)
    for cycle in range(6):
        turns = (0, 3) if cycle % 2 == 0 else (1, 2)
        table.solo([0.1, 0.1, 0.1, 0.2], cycle=cycle, turns=turns)
        table.block("unsynced", [[0.1, 0.1, 0.1, 0.2]] * 4, cycle=cycle)
        table.block("train", [0.3] * 8, cycle=cycle)
        table.block("cached", [0.25] * 4, cycle=cycle)
    steps = step_frame([measured(0, table)])
    job = job_steps(steps)
    # THEN no step is lost, and each part is known
    assert job["rung"].value_counts().to_dict() == {
        "train": 48, "cached": 24, "unsynced": 24, "solo": 0, "half": 0, "double": 0,
    }  # fmt: skip
    assert len(rank_rows(steps, job, "train")) == 4 * 48
    shares = shares_of(cycles(steps, job)).time_share
    assert values(shares)[:4] == pytest.approx([1 / 3, 0.0, 1 / 3, 0.0], abs=1e-9)
    assert None not in values(shares)


def test_ranks_that_take_turns_lose_no_more_than_the_job_does() -> None:
    # GIVEN two ranks on one core: apart, each step is 40 or 80 ms by turns; together it is 64
    turns = [[0.040, 0.080], [0.080, 0.040]] * 2
    found = ladder(train=0.064, cached=0.064, unsynced=turns, solo=[0.030, 0.030])
    # THEN the slowest of each step (80 ms) is bounded by the job's step
    got = shares_of(found)
    assert values(got.seconds) == pytest.approx([0.030, 0.030, 0.0, 0.004, 0.0, 0.0])


def test_a_slow_rank_is_a_straggler_and_no_part_of_the_others_compute() -> None:
    # GIVEN rank 2 of 3 is 15 ms slower, alone and together
    slow = [[0.042, 0.042, 0.057]] * 4
    found = ladder(train=0.070, cached=0.065, unsynced=slow, solo=[0.040, 0.040, 0.055])
    got = shares_of(found)
    assert values(got.seconds) == pytest.approx([0.040, 0.002, 0.015, 0.0, 0.008, 0.005])
    assert got.slow is not None
    assert got.slow.rank == 2
    assert got.slow.excess_s.value == pytest.approx(0.015)


def test_a_rank_that_is_slow_in_turn_is_jitter() -> None:
    # GIVEN one rank in each step takes 30 ms more, each as often
    rotating = [[0.070, 0.040], [0.040, 0.070]] * 2
    found = ladder(train=0.075, cached=0.075, unsynced=rotating, solo=[0.055, 0.055])
    got = shares_of(found)
    # THEN E max = 70, every rank's mean 55: 15 ms of jitter, no straggler
    assert values(got.seconds) == pytest.approx([0.055, 0.0, 0.0, 0.015, 0.005, 0.0])
    assert got.slow is None


def test_at_one_device_there_are_neither_stragglers_nor_jitter() -> None:
    found = ladder(train=0.050, cached=0.041, unsynced=[[0.041]] * 4, solo=[0.040])
    got = shares_of(found)
    assert values(got.seconds) == pytest.approx([0.040, 0.001, 0.0, 0.0, 0.0, 0.009])
    assert got.time_share.straggler.low == got.time_share.straggler.high == 0.0


def test_intervals_are_paired_over_cycles() -> None:
    # GIVEN a machine that gets 10 % slower cycle by cycle, with data always a fifth of the step
    table = StepTable(1)
    for cycle in range(6):
        speed = 1.1**cycle
        table.block("train", [0.050 * speed] * 4, cycle=cycle)
        table.block("cached", [0.040 * speed] * 4, cycle=cycle)
    steps = step_frame([measured(0, table)])
    got = shares_of(cycles(steps, job_steps(steps)))
    # THEN the share is known as well as can be although step times are not
    data = got.time_share.data
    assert data.value == pytest.approx(0.2)
    assert (data.low, data.high) == (pytest.approx(0.195), pytest.approx(0.205))
    assert got.seconds.data.low is not None
    assert got.seconds.data.low < 0.9 * 0.0154


def test_an_interval_worked_by_hand() -> None:
    # GIVEN steps of 1 s of which data takes 0.1, 0.2, 0.3 in three cycles
    table = StepTable(1)
    for cycle, data in enumerate((0.1, 0.2, 0.3)):
        table.block("train", [1.0] * 4, cycle=cycle)
        table.block("cached", [1.0 - data] * 4, cycle=cycle)
    steps = step_frame([measured(0, table)])
    got = shares_of(cycles(steps, job_steps(steps))).time_share.data
    # THEN s = 0.1, half = t(0.975; 2) * 0.1 / sqrt(3), and half a point joins
    half = math.hypot(4.302653 * 0.1 / math.sqrt(3), 0.005)
    assert (got.value, got.low, got.high) == (
        pytest.approx(0.2),
        pytest.approx(0.2 - half, rel=1e-5),
        pytest.approx(0.2 + half, rel=1e-5),
    )


def test_a_rung_that_could_not_run_takes_only_its_parts_along() -> None:
    table = StepTable(2)
    for cycle in range(6):
        table.block("train", [0.06] * 4, cycle=cycle).block("cached", [0.05] * 4, cycle=cycle)
    steps = step_frame([measured(0, table)])
    found = cycles(steps, job_steps(steps))
    got = time_shares(found, {"unsynced": "parameters are sharded", "solo": "the same"})
    assert got is not None
    assert got.time_share.data.value == pytest.approx(1 / 6)
    assert got.time_share.compute.value is None
    assert got.time_share.compute.reason == "rung solo: the same"
    for part in ("host", "straggler", "jitter", "communication"):
        assert getattr(got.time_share, part).value is None
        assert getattr(got.time_share, part).reason == "rung unsynced: parameters are sharded"


def test_without_solo_the_rest_is_known() -> None:
    table = StepTable(2)
    for cycle in range(6):
        table.block("train", [0.06] * 4, cycle=cycle).block("cached", [0.05] * 4, cycle=cycle)
        table.block("unsynced", [[0.04, 0.04]] * 4, cycle=cycle)
    steps = step_frame([measured(0, table)])
    got = shares_of(cycles(steps, job_steps(steps))).seconds
    assert values(got) == [
        None,
        None,
        0.0,
        pytest.approx(0.0),
        pytest.approx(0.01),
        pytest.approx(0.01),
    ]
    assert got.compute.reason == "rung solo: gave no measured step in steady state"


def test_too_few_cycles_tell_no_slow_rank() -> None:
    found = ladder(
        cycles_=2, train=0.06, cached=0.05, unsynced=[[0.04, 0.05]] * 4, solo=[0.04, 0.05]
    )
    got = shares_of(found).time_share
    assert got.data.value == pytest.approx(1 / 6)
    assert got.communication.value == pytest.approx(0.0)
    for part in ("compute", "host", "straggler", "jitter"):
        assert getattr(got, part).reason == "only 2 cycles measured, 3 tell a slow rank"


def test_a_cycle_cut_short_is_not_used() -> None:
    table = StepTable(1)
    for cycle in range(3):
        table.block("train", [0.05] * 4, cycle=cycle).block("cached", [0.04] * 4, cycle=cycle)
    table.block("train", [0.09] * 4, cycle=3)
    steps = step_frame([measured(0, table)])
    got = shares_of(cycles(steps, job_steps(steps)))
    assert (got.cycles, got.step_s) == (3, pytest.approx(0.05))


def test_without_a_train_block_there_are_no_shares() -> None:
    steps = step_frame([measured(0, StepTable(1).block("cached", [0.1] * 4, cycle=0))])
    assert time_shares(cycles(steps, job_steps(steps)), {}) is None


def test_turns_missing_in_a_cycle_are_estimated_from_the_ranks_mean() -> None:
    # GIVEN rank 1 takes 10 ms more than rank 0, and the second cycle is 2 ms slower
    nan = math.nan
    solo = np.array([[0.040, 0.050], [0.042, nan], [0.040, 0.050]])
    found = Cycles(
        launch=np.zeros(3, dtype=np.int64),
        train_s=np.ones(3),
        cached_s=np.ones(3),
        slowest_s=np.ones(3),
        unsynced_s=np.ones((3, 2)),
        solo_s=solo,
    )
    # THEN rank means are 122/3 and 50 ms, the cycle's drift 42 - 122/3 = 4/3 ms
    assert filled_solo(found)[1, 1] == pytest.approx(0.050 + 0.004 / 3)


def disturbed_launch(cycles_: int, *, in_cycles: set[int], wait_s: float = 0.0) -> Cycles:
    """Steps of 50 ms, one of them 500 ms in some cycles, of which ``wait_s`` is for data."""
    table = StepTable(2)
    for cycle in range(cycles_):
        times = [0.05] * 7 + [0.5 if cycle in in_cycles else 0.05]
        table.block("train", times, cycle=cycle).block("cached", [0.05] * 4, cycle=cycle)
    launch = measured(0, table)
    assert launch.steps is not None
    step_s, wait = (STEP_COLUMNS.index(name) for name in ("step_s", "data_wait_s"))
    # rank 0 waits for data, rank 1 for rank 0
    stalled = (launch.steps[:, step_s] == 0.5) & (launch.steps[:, 0] == 0)
    launch.steps[stalled, wait] = wait_s
    steps = step_frame([launch])
    return cycles(steps, job_steps(steps))


def test_a_cycle_that_the_machine_disturbed_is_left_out() -> None:
    found = disturbed_launch(6, in_cycles={1, 4})
    assert found.disturbed == 2
    assert shares_of(found).step_s == pytest.approx(0.05)


def test_what_happens_in_many_cycles_belongs_to_the_job() -> None:
    found = disturbed_launch(6, in_cycles={1, 3, 5})
    assert found.disturbed == 0
    assert shares_of(found).step_s == pytest.approx((0.05 * 45 + 0.5 * 3) / 48)


def test_a_stall_of_the_loader_is_no_disturbance() -> None:
    found = disturbed_launch(6, in_cycles={1}, wait_s=0.45)
    assert found.disturbed == 0
    assert shares_of(found).time_share.data.value == pytest.approx(0.45 / 48 / (0.05 + 0.45 / 48))


def test_a_disturbed_turn_alone_counts_as_well() -> None:
    table = StepTable(2)
    for cycle in range(6):
        table.block("train", [0.05] * 4, cycle=cycle).block("cached", [0.05] * 4, cycle=cycle)
        table.block("unsynced", [[0.05, 0.05]] * 4, cycle=cycle)
        table.solo([0.05, 0.9 if cycle == 2 else 0.05], cycle=cycle, steps=1)
    steps = step_frame([measured(0, table)])
    found = cycles(steps, job_steps(steps))
    assert found.disturbed == 1
    assert shares_of(found).seconds.compute.value == pytest.approx(0.05)


@pytest.mark.parametrize("cycles_", [3, 4, 8, 18])
@pytest.mark.parametrize("ranks", [2, 8])
def test_noise_makes_no_straggler(cycles_: int, ranks: int) -> None:
    # GIVEN 1000 healthy launches with 3 % noise
    rng = np.random.default_rng(11)
    shape = cycles_, ranks
    found = [pick_slow(1 + 0.03 * rng.standard_normal(shape)) for _ in range(1000)]
    # THEN about 1 % name a rank, and the excess is zero on average
    assert sum(one.rank is not None for one in found) <= 15
    mean = float(np.mean([one.excess_s.mean() for one in found]))
    assert abs(mean) < 0.003


def test_a_slow_rank_in_noise_is_found() -> None:
    rng = np.random.default_rng(12)
    table = 1 + 0.03 * rng.standard_normal((8, 8))
    table[:, 5] += 0.1
    assert pick_slow(table).rank == 5


def replayed(rng: np.random.Generator, slower: float = 0.0) -> tuple[Array, Array]:
    """8 cycles of 9 steps over the same 32 batches of 4 ranks, of unlike length; rank 2 slower."""
    lengths = rng.uniform(0.2, 1.8, (32, 4)) + slower * (np.arange(4) == 2)
    steps = lengths[np.arange(8 * 9) % 32] + 0.01 * rng.standard_normal((72, 4))
    batches = np.array([steps[np.arange(place, 72, 32)].mean(axis=0) for place in range(32)])
    return steps.reshape(8, 9, 4).mean(axis=1), batches


def test_batches_of_unlike_length_make_no_straggler() -> None:
    # GIVEN 400 launches whose ranks are alike, but not the few batches that each of them replays
    rng = np.random.default_rng(13)
    tables = [replayed(rng) for _ in range(400)]
    assert sum(pick_slow(cycles, batches).rank is not None for cycles, batches in tables) <= 4
    # WHEN batches are not looked at THEN their luck is taken for a slow rank
    assert sum(pick_slow(cycles).rank is not None for cycles, _ in tables) > 20


def test_a_slow_rank_among_batches_of_unlike_length_is_found() -> None:
    rng = np.random.default_rng(14)
    assert [pick_slow(*replayed(rng, slower=0.8)).rank for _ in range(20)] == [2] * 20


def test_batches_are_told_apart_by_their_place_in_the_ring() -> None:
    # GIVEN 3 batches kept, and blocks of 4 steps: cycle 1 begins with the second batch
    table = StepTable(2)
    table.block("unsynced", [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [1.2, 2.2]], cycle=0)
    table.block("unsynced", [[3.2, 4.2], [5.2, 6.2], [1.4, 2.4], [3.4, 4.4]], cycle=1)
    got = batch_steps(step_frame([measured(0, table)]), {0: 3}, 2)
    assert got == pytest.approx(np.array([[1.2, 2.2], [3.2, 4.2], [5.1, 6.1]]))


@pytest.mark.parametrize("shape", [(2, 4), (8, 1)])
def test_a_slow_rank_needs_cycles_and_ranks(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="slow"):
        pick_slow(np.ones(shape))


step_times = st.floats(0.01, 1.0)


@st.composite
def random_cycles(draw: st.DrawFn) -> Cycles:
    ranks, count = draw(st.integers(1, 4)), draw(st.integers(4, 8))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    unsynced = rng.uniform(0.01, 1.0, (count, ranks))
    return Cycles(
        launch=np.sort(rng.integers(0, 2, count)),
        train_s=rng.uniform(0.01, 1.0, count),
        cached_s=rng.uniform(0.01, 1.0, count),
        slowest_s=unsynced.max(axis=1) * rng.uniform(1.0, 1.5, count),
        unsynced_s=unsynced,
        solo_s=rng.uniform(0.01, 1.0, (count, ranks)),
    )


@settings(deadline=None)
@given(random_cycles())
def test_shares_sum_to_one_and_seconds_to_the_step(found: Cycles) -> None:
    got = shares_of(found)
    assert sum(v for v in values(got.time_share) if v is not None) == pytest.approx(1.0)
    assert sum(v for v in values(got.seconds) if v is not None) == pytest.approx(got.step_s)


@settings(deadline=None)
@given(random_cycles(), st.randoms())
def test_the_order_of_ranks_does_not_matter(found: Cycles, random: object) -> None:
    order = list(range(found.solo_s.shape[1]))
    random.shuffle(order)  # type: ignore[attr-defined]
    turned = Cycles(
        launch=found.launch,
        train_s=found.train_s,
        cached_s=found.cached_s,
        slowest_s=found.slowest_s,
        unsynced_s=found.unsynced_s[:, order],
        solo_s=found.solo_s[:, order],
    )
    one, other = shares_of(found), shares_of(turned)
    assert values(other.time_share) == pytest.approx(values(one.time_share))
    if one.slow is not None:
        assert other.slow is not None
        assert order[other.slow.rank] == one.slow.rank
