"""Pairs of measurements become a decision."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfbench.gating.statistics.decision import (
    ALPHAS,
    LOOKS,
    Centre,
    centre,
    confirms,
    decide,
    difference,
    estimate,
    pairs_needed,
)

LIMIT = math.log(0.92)


def of(*ratios: float) -> Centre:
    return centre([math.log(ratio) for ratio in ratios])


def test_trimmed_mean_by_hand() -> None:
    # GIVEN five values, of which one is cut at each end; winsorised: 1 1 2 3 3
    found = centre([3.0, 100.0, 1.0, 2.0, -50.0])
    # THEN mean of 1 2 3; s_w = 1; error = 1 / (0.6 sqrt 5); 5 - 2 - 1 degrees of freedom
    assert found == Centre(mean=2.0, error=1 / (0.6 * math.sqrt(5)), degrees=2, count=5)


@pytest.mark.parametrize("values", [[], [0.1, 0.2], [0.1, 0.2, math.nan]])
def test_too_few_or_broken_values_have_no_mean(values: list[float]) -> None:
    with pytest.raises(ValueError, match="three finite"):
        centre(values)


def test_difference_of_two_means_by_hand() -> None:
    # GIVEN errors 3 and 4 with 5 and 10 degrees: 25^2 / (81/5 + 256/10) by Welch
    one = Centre(mean=2.0, error=3.0, degrees=5, count=6)
    other = Centre(mean=0.5, error=4.0, degrees=10, count=11)
    found = difference(one, other)
    assert (found.mean, found.error, found.count) == (1.5, 5.0, 6)
    assert found.degrees == pytest.approx(625 / (81 / 5 + 256 / 10))


def test_difference_without_noise_keeps_the_fewer_degrees() -> None:
    still = Centre(mean=1.0, error=0.0, degrees=3, count=6)
    assert difference(still, Centre(mean=1.0, error=0.0, degrees=9, count=16)).degrees == 3


def test_clear_slow_down_fails_at_the_first_look() -> None:
    ratios = [0.60, 0.62, 0.61, 0.60, 0.63, 0.61]
    assert decide(of(*ratios[:5]), LIMIT) == "continue"
    assert decide(of(*ratios), LIMIT) == "fail"


def test_no_change_passes() -> None:
    assert decide(of(1.00, 1.01, 0.99, 1.00, 1.01, 0.99), LIMIT) == "pass"


def test_one_burst_changes_nothing() -> None:
    assert decide(of(1.00, 1.01, 0.40, 1.00, 1.01, 0.99), LIMIT) == "pass"


def test_noise_at_the_limit_goes_on() -> None:
    at = of(0.85, 0.99, 0.88, 0.97, 0.90, 0.95)
    assert decide(at, LIMIT) == "continue"
    assert (pairs_needed(at, LIMIT) or 999) > 16


def test_a_change_that_is_the_margin_needs_more_pairs_than_anyone_has() -> None:
    assert pairs_needed(Centre(mean=LIMIT, error=0.01, degrees=3, count=6), LIMIT) is None


def test_fresh_pairs_confirm_where_their_mean_is_below_the_limit_too() -> None:
    assert confirms(of(0.80, 0.85, 0.90, 0.95), LIMIT)
    assert not confirms(of(0.80, 1.00, 1.00, 1.00), LIMIT)
    # WHEN one burst is among them, it decides nothing
    assert confirms(of(0.85, 0.86, 0.84, 3.00), LIMIT)
    assert not confirms(of(0.95, 0.96, 0.94, 0.10), LIMIT)


@given(st.lists(st.floats(0.2, 5.0), min_size=6, max_size=16), st.floats(0.1, 10.0))
def test_a_change_scales(ratios: list[float], factor: float) -> None:
    plain, scaled = estimate(of(*ratios)), estimate(of(*(r * factor for r in ratios)))
    assert scaled.value + 1 == pytest.approx((plain.value + 1) * factor)
    assert plain.low <= plain.value <= plain.high


def test_false_fails_in_simulation_stay_below_one_percent() -> None:
    # GIVEN unchanged code under a noise of 5 % per pair with bursts, 2,000 runs of the gate
    rng = np.random.default_rng(7)
    fails = 0
    for _ in range(2000):
        logs = rng.normal(0.0, 0.05, LOOKS[-1])
        bursts = rng.random(LOOKS[-1]) < 0.06
        logs += bursts * rng.normal(0.0, 0.5, LOOKS[-1])
        decisions = (decide(centre(list(logs[:look])), LIMIT) for look in LOOKS)
        fails += next((d for d in decisions if d != "continue"), "none") == "fail"
    assert fails / 2000 <= 0.01


def test_the_looks_spend_what_was_agreed() -> None:
    assert sum(ALPHAS) == pytest.approx(0.05)
    assert len(ALPHAS) == len(LOOKS)
