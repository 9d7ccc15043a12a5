"""Intervals from rounds and blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfbench.analyze.intervals import (
    LaunchVariance,
    Spread,
    difference_spread,
    grouped_spread,
    launch_variance,
    mean_interval,
    ratio_interval,
    spread,
    widened,
)
from sfbench.common.schema import Interval


def groups(*values: list[float]) -> list[np.ndarray]:
    return [np.array(v) for v in values]


def test_launches_that_differ_no_more_than_blocks_are_pooled() -> None:
    # GIVEN two launches with equal means: F = 0
    # THEN the six values 1 2 3 1 2 3 are one sample: s^2 = 4/5, error sqrt(4/5/6), 5 dof
    got = grouped_spread(groups([1, 2, 3], [3, 1, 2]))
    assert got == Spread(error=pytest.approx(math.sqrt(4 / 30)), dof=5)


def test_launches_that_differ_are_the_sample() -> None:
    # GIVEN launch means 2 and 12 with little spread within
    # THEN the error is that of two values: |12 - 2| / 2, with 1 degree of freedom
    got = grouped_spread(groups([1.9, 2.0, 2.1], [11.9, 12.0, 12.1]))
    assert got == Spread(error=pytest.approx(5.0), dof=1)


def test_one_block_in_each_launch_leaves_the_launches() -> None:
    got = grouped_spread(groups([1.0], [2.0], [3.0]))
    assert got == Spread(error=pytest.approx(1 / math.sqrt(3)), dof=2)


def test_launches_of_unequal_length_weigh_by_their_blocks() -> None:
    # GIVEN 4 values at 0 and 2 at 3: grand mean 1, weights 2/3 and 1/3
    # THEN variance = 2/1 * (4/9 * 1 + 1/9 * 4) = 16/9
    got = grouped_spread(groups([0.0] * 4, [3.0] * 2))
    assert got == Spread(error=pytest.approx(4 / 3), dof=1)


@pytest.mark.parametrize("values", [[], [[]], [[1.0]], [[1.0], []]])
def test_fewer_than_two_values_have_no_spread(values: list[list[float]]) -> None:
    assert grouped_spread(groups(*values)) is None


def test_equal_values_have_an_error_of_zero() -> None:
    assert grouped_spread(groups([2.0, 2.0], [2.0])) == Spread(error=0.0, dof=2)


def test_launches_of_all_points_tell_how_much_launches_vary() -> None:
    # GIVEN launch means 0 and 2 at one point, 5, 5 and 8 at another, with little spread within
    points = [groups([-0.1, 0.1], [1.9, 2.1]), groups([4.9, 5.1], [4.9, 5.1], [7.9, 8.1])]
    # THEN squares 2 * 1^2 and 1 + 1 + 4, over 1 + 2 degrees of freedom
    assert launch_variance(points) == LaunchVariance(variance=pytest.approx(8 / 3), dof=3)


def test_launches_that_differ_no_more_than_blocks_have_no_variance_of_their_own() -> None:
    points = [groups([1, 2, 3], [3, 1, 2]), groups([5, 6, 7], [7, 6, 5])]
    assert launch_variance(points) is None


def test_single_launches_tell_nothing_of_how_launches_vary() -> None:
    assert launch_variance([groups([1, 2]), groups([5, 9])]) is None
    assert launch_variance([]) is None


def test_few_launches_use_the_variance_of_the_sweep() -> None:
    shared = LaunchVariance(variance=9.0, dof=6)
    assert spread(groups([1.0], [2.0]), shared) == Spread(error=pytest.approx(3 / 2**0.5), dof=6)
    # one launch is known no better than launches vary
    assert spread(groups([1.0, 1.1, 1.2]), shared) == Spread(error=3.0, dof=6)


def test_few_launches_that_do_not_differ_are_pooled_by_block() -> None:
    got = spread(groups([1.0, 2.0, 3.0], [11.0, 12.0, 13.0]), None)
    assert got is not None
    assert got.dof == 5


def test_many_launches_speak_for_themselves() -> None:
    four = groups([1.0, 1.1], [5.0, 5.1], [9.0, 9.1], [2.0, 2.1])
    assert spread(four, LaunchVariance(variance=1e-9, dof=50)) == grouped_spread(four)


def test_a_variance_that_both_sides_share_counts_once() -> None:
    shared = LaunchVariance(variance=1.0, dof=6)
    one = Spread(error=1.0, dof=6)
    assert difference_spread(one, one, shared) == Spread(error=pytest.approx(2**0.5), dof=6)
    assert difference_spread(one, one) == Spread(error=pytest.approx(2**0.5), dof=12)


def test_half_width_is_students_t() -> None:
    # t(0.975; 4) = 2.776445
    assert Spread(error=2.0, dof=4).half_width == pytest.approx(2 * 2.776445)


def test_difference_has_the_degrees_of_freedom_of_welch() -> None:
    # (1 + 4)^2 / (1/4 + 16/9) = 25 / (73/36) = 900/73
    got = difference_spread(Spread(error=1.0, dof=4), Spread(error=2.0, dof=9))
    assert got == Spread(error=pytest.approx(math.sqrt(5)), dof=pytest.approx(900 / 73))


def test_difference_with_an_unknown_is_unknown() -> None:
    assert difference_spread(None, Spread(error=1.0, dof=4)) is None


def test_difference_of_exact_means_is_exact() -> None:
    got = difference_spread(Spread(error=0.0, dof=4), Spread(error=0.0, dof=2))
    assert got == Spread(error=0.0, dof=2)


def test_intervals_centre_on_the_value() -> None:
    spread = Spread(error=0.1, dof=4)
    factor = math.exp(0.2776445)
    assert ratio_interval(50.0, spread) == Interval(
        value=50.0, low=pytest.approx(50 / factor), high=pytest.approx(50 * factor)
    )
    assert mean_interval(-1.0, spread) == Interval(
        value=-1.0, low=pytest.approx(-1.2776445), high=pytest.approx(-0.7223555)
    )


def test_one_sample_gives_no_interval() -> None:
    assert ratio_interval(5.0, None) == Interval(value=5.0, low=None, high=None)
    assert mean_interval(5.0, None) == Interval(value=5.0, low=None, high=None)


def test_a_ratio_that_may_be_off_by_thousands_has_no_interval() -> None:
    assert ratio_interval(5.0, Spread(error=200.0, dof=1)).low is None


blocks = st.lists(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=6), min_size=1, max_size=4)


@settings(deadline=None)
@given(blocks, st.floats(-3, 3))
def test_a_change_of_unit_does_not_change_the_spread_of_logs(
    values: list[list[float]], shift: float
) -> None:
    # a factor on rates is a shift of their logarithms
    plain = grouped_spread(groups(*values))
    moved = grouped_spread([np.array(v) + shift for v in values])
    if plain is None or moved is None:
        assert plain is moved
    elif plain.dof == moved.dof:  # rounding may tip an F test that stands on its edge
        assert moved.error == pytest.approx(plain.error, rel=1e-6, abs=1e-9)


def test_95_percent_intervals_cover_95_percent() -> None:
    # GIVEN 2,000 sweeps of 3 launches of 5 blocks, with launches that differ or not
    rng = np.random.default_rng(5)
    for between in (0.0, 0.05):
        hits = 0
        for _ in range(2000):
            values = [
                between * rng.standard_normal() + 0.02 * rng.standard_normal(5) for _ in "abc"
            ]
            spread = grouped_spread(values)
            assert spread is not None
            hits += abs(np.concatenate(values).mean()) <= spread.half_width
        # THEN the truth, 0, is inside in about 95 % (three standard errors are 1.5 points)
        assert 0.93 <= hits / 2000 <= 0.98


def test_an_error_of_its_own_widens_each_side() -> None:
    # GIVEN 3 below and 4 above: with 4 and 3 they make 5 each
    assert widened(Interval(value=10.0, low=7.0, high=14.0), 4.0).low == pytest.approx(5.0)
    assert widened(Interval(value=10.0, low=7.0, high=14.0), 3.0).high == pytest.approx(15.0)
    unknown = Interval(value=10.0, low=None, high=None)
    assert widened(unknown, 4.0) == unknown
