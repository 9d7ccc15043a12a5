"""Pairs of measurements become a decision."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfbench.gate.decision import (
    ALPHAS,
    LOOKS,
    change,
    contaminated,
    decide,
    pairs_needed,
    trimmed_mean,
)


def test_trimmed_mean_by_hand() -> None:
    # GIVEN five values, of which one is cut at each end; winsorised: 1 1 2 3 3
    centre = trimmed_mean(np.array([3.0, 100.0, 1.0, 2.0, -50.0]))
    # THEN mean of 1 2 3; s_w = 1; error = 1 / (0.6 sqrt 5); 5 - 2 - 1 degrees of freedom
    assert centre.mean == 2.0
    assert centre.error == pytest.approx(1 / (0.6 * math.sqrt(5)))
    assert centre.degrees == 2


def test_clear_slow_down_fails_at_the_first_look() -> None:
    ratios = [0.60, 0.62, 0.61, 0.60, 0.63, 0.61]
    assert decide(ratios[:5], 0.08) == "continue"
    assert decide(ratios, 0.08) == "fail"


def test_no_change_passes() -> None:
    assert decide([1.00, 1.01, 0.99, 1.00, 1.01, 0.99], 0.08) == "pass"


def test_one_burst_changes_nothing() -> None:
    assert decide([1.00, 1.01, 0.40, 1.00, 1.01, 0.99], 0.08) == "pass"


def test_noise_at_the_limit_goes_on() -> None:
    ratios = [0.85, 0.99, 0.88, 0.97, 0.90, 0.95]
    assert decide(ratios, 0.08) == "continue"
    assert (pairs_needed(ratios, 0.08) or 999) > 16


def test_a_control_that_moved_is_the_machine() -> None:
    assert contaminated([0.80, 0.81, 0.79, 0.80, 0.82, 0.80])
    assert not contaminated([0.99, 1.01, 1.00, 0.98, 1.02, 1.00])
    # WHEN it moved for certain, but by less than the band
    assert not contaminated([0.980, 0.981, 0.979, 0.980, 0.980, 0.981])


@given(st.lists(st.floats(0.2, 5.0), min_size=6, max_size=16), st.floats(0.1, 10.0))
def test_a_change_scales(ratios: list[float], factor: float) -> None:
    plain, scaled = change(ratios), change([r * factor for r in ratios])
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
        for look in LOOKS:
            decision = decide(list(np.exp(logs[:look])), 0.08)
            if decision != "continue":
                break
        fails += decision == "fail"
    assert fails / 2000 <= 0.01


def test_the_looks_spend_what_was_agreed() -> None:
    assert sum(ALPHAS) == pytest.approx(0.025)
    assert len(ALPHAS) == len(LOOKS)
