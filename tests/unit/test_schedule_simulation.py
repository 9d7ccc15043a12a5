"""Intervals hold the truth as often as they say, and chance refuses no stationary loop."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_simulation import Noise, series, worth

from sfbench.analyze.warmup import trending

SWEEPS = 200


@pytest.mark.parametrize(
    ("noise", "half_width"),
    [
        (Noise(mood=0.05, launch=0.03, block=0.03), 0.045),
        (Noise(mood=0.1, launch=0.0, block=0.05), 0.045),
        (Noise(mood=0.05, launch=0.06, block=0.05, memory=0.6), 0.09),
    ],
)
def test_an_interval_holds_the_truth_as_often_as_it_says(noise: Noise, half_width: float) -> None:
    # GIVEN 95 % meant, and 200 sweeps: 91 to 99 % is three standard errors
    found = worth(noise, SWEEPS)
    assert 0.91 <= found.covered <= 0.99
    assert found.half_width < half_width
    assert abs(found.off) < 0.01


@pytest.mark.parametrize(("launches", "blocks"), [(8, 3), (3, 6), (1, 12)])
def test_chance_refuses_no_stationary_loop(launches: int, blocks: int) -> None:
    rng = np.random.default_rng(3)
    noise = Noise(mood=0.0, launch=0.0, block=0.15, memory=0.6)
    refused = [trending([series(rng, blocks, noise) for _ in range(launches)]) for _ in range(400)]
    assert np.mean(refused) <= 0.02  # 1 % meant, of 400
