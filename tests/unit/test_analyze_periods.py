"""How often something comes, from where it was seen."""

from __future__ import annotations

import random

import pytest

from sfbench.analyze.periods import (
    Rule,
    find_rule,
    part_interval,
    per_step,
    size_interval,
    times_interval,
)


def seen(period: int, place: int, lengths: dict[int, int]) -> list[tuple[int, int]]:
    return [
        (launch, step)
        for launch, length in lengths.items()
        for step in range(place or period, length, period)
    ]


@pytest.mark.parametrize(("period", "place"), [(10, 0), (25, 1), (40, 39), (100, 0)])
def test_period_and_place_are_found(period: int, place: int) -> None:
    lengths = {0: 430, 1: 410, 2: 390}
    rule = find_rule(seen(period, place, lengths), lengths)

    assert rule is not None
    assert (rule.period, rule.place, rule.sure) == (period, place, True)


def test_a_rule_stands_out_of_bursts() -> None:
    rng = random.Random(3)
    lengths = {0: 400, 1: 400, 2: 400}
    bursts = [(rng.randrange(3), rng.randrange(400)) for _ in range(12)]

    rule = find_rule([*seen(20, 0, lengths), *bursts], lengths)

    assert rule is not None
    assert rule.period == 20


@pytest.mark.parametrize("seed", range(20))
def test_bursts_follow_no_rule(seed: int) -> None:
    rng = random.Random(seed)
    lengths = {0: 400, 1: 400, 2: 400}
    assert find_rule([(rng.randrange(3), rng.randrange(400)) for _ in range(20)], lengths) is None


def test_twice_is_no_rule() -> None:
    assert find_rule([(0, 100), (0, 200)], {0: 250}) is None


def test_once_in_each_launch_may_be_a_period_but_is_not_sure() -> None:
    rule = find_rule([(0, 100), (1, 100), (2, 100)], {0: 130, 1: 150, 2: 120})

    assert rule is not None
    assert (rule.period, rule.sure) == (100, False)
    assert per_step([1.0, 1.0, 1.1], 400, rule).low == 0.0


def test_one_longer_launch_without_a_second_one_disproves_it() -> None:
    assert find_rule([(0, 30), (1, 30), (2, 30)], {0: 200, 1: 200, 2: 190}) is None


def test_one_longer_launch_with_a_second_one_proves_it() -> None:
    rule = find_rule([(0, 100), (1, 100), (2, 100), (2, 200)], {0: 130, 1: 150, 2: 220})

    assert rule is not None
    assert (rule.period, rule.sure) == (100, True)


def test_two_at_any_distance_once_per_start_are_not_sure() -> None:
    at = [(launch, step) for launch in range(3) for step in (40, 200)]
    rule = find_rule(at, {0: 250, 1: 250, 2: 250})
    assert rule is None or not rule.sure


def test_an_interval_is_honest_about_few() -> None:
    two = size_interval([1.0, 1.2])
    one = size_interval([1.0])

    assert two.high is not None
    assert two.high - two.value == pytest.approx(12.706 * 0.1, rel=1e-3)
    assert (one.low, one.high) == (0.0, 2.0)


def test_a_count_has_the_interval_of_garwood() -> None:
    assert times_interval(0) == (0.0, pytest.approx(3.689, abs=1e-3))
    assert times_interval(5) == (pytest.approx(1.623, abs=1e-3), pytest.approx(11.668, abs=1e-3))
    assert per_step([0.2] * 5, 100, None).value == pytest.approx(0.01)


def test_where_some_due_steps_had_none_the_cost_is_that_of_those_that_had() -> None:
    lengths = {0: 400, 1: 400}
    at = [one for one in seen(20, 0, lengths) if one not in ((0, 100), (1, 60), (1, 200))]
    rule = find_rule(at, lengths)

    assert rule is not None
    assert (rule.period, rule.times, rule.due) == (20, 35, 38)
    cost = per_step([0.2] * 35, 800, rule)
    assert cost.value == pytest.approx(0.2 / 20 * 35 / 38)
    assert cost.low is not None
    assert cost.high is not None
    assert cost.low < 0.2 / 20 * 0.85
    assert cost.high > 0.2 / 20 * 0.97


def test_where_all_due_steps_had_one_only_the_size_is_uncertain() -> None:
    rule = Rule(period=10, place=0, times=4, due=4)
    cost, size = per_step([0.2, 0.21, 0.19, 0.2], 400, rule), size_interval([0.2, 0.21, 0.19, 0.2])

    assert (cost.value, cost.low) == (pytest.approx(0.02), pytest.approx((size.low or 0) / 10))


def test_a_part_has_the_interval_of_clopper_and_pearson() -> None:
    part = part_interval(8, 10)
    assert (part.low, part.high) == (
        pytest.approx(0.4439, abs=1e-4),
        pytest.approx(0.9748, abs=1e-4),
    )
