"""Steady state by MSER-5."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfbench.common.steady import Steady, mser5, settled


def test_a_flat_series_needs_no_cut() -> None:
    # GIVEN 50 equal steps
    # THEN every cut has error 0 and the first is taken
    assert mser5(np.full(50, 0.1)) == Steady(cut=0, found=True)


def test_slow_first_steps_are_cut() -> None:
    # GIVEN ten steps of 1 s, then 90 that alternate between 0.1 and 0.3 s
    steps = np.concatenate([np.full(10, 1.0), np.tile([0.1, 0.3], 45)])
    # THEN the cut is behind the tenth step
    assert mser5(steps).cut == 10
    assert mser5(steps).found


def test_a_series_that_never_settles_is_not_steady() -> None:
    # GIVEN steps that get slower to the end
    # THEN the best cut lies beyond half
    assert not mser5(np.linspace(1.0, 2.0, 200)).found


def test_the_error_is_that_of_the_definition() -> None:
    # GIVEN a series with a transient and noise
    rng = np.random.default_rng(3)
    steps = 1.0 + np.exp(-np.arange(200) / 20) + 0.1 * rng.standard_normal(200)
    means = steps.reshape(40, 5).mean(axis=1)
    # WHEN the definition is written out for every cut that leaves five batches
    errors = [means[d:].var() / (40 - d) for d in range(36)]
    # THEN the same cut is found
    assert mser5(steps).cut == 5 * int(np.argmin(errors))


@pytest.mark.parametrize("length", [0, 1, 24])
def test_too_short_a_series_is_not_called_steady(length: int) -> None:
    assert mser5(np.ones(length)) == Steady(cut=0, found=False)


def test_steps_that_fill_no_batch_are_not_looked_at() -> None:
    flat = np.full(52, 0.1)
    flat[50:] = 9.0
    assert mser5(flat) == Steady(cut=0, found=True)


@pytest.mark.parametrize("steps", [np.ones((5, 5)), np.array([1.0, np.nan])])
def test_what_is_no_series_of_times_is_refused(steps: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite"):
        mser5(steps)


@settings(deadline=None)
@given(
    st.lists(st.floats(0.01, 10.0), min_size=25, max_size=120),
    st.sampled_from([0.25, 2.0, 1024.0]),
)
def test_the_unit_of_time_does_not_matter(values: list[float], scale: float) -> None:
    # powers of two scale floats exactly
    assert mser5(np.array(values)) == mser5(np.array(values) * scale)


def test_bursts_do_not_prolong_warmup() -> None:
    # GIVEN steps of one length, and a burst beyond half that MSER-5 cuts at
    steps = np.full(60, 0.1) * (1 + 0.01 * np.random.default_rng(1).standard_normal(60))
    steps[35:40] *= 5
    assert not mser5(steps).found
    assert settled(steps)


def test_steps_that_still_fall_are_not_settled() -> None:
    assert not settled(np.linspace(2.0, 1.0, 60))
