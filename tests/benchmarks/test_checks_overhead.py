"""What watching for faults costs: nothing in measured steps, and its window before them.

In measured steps the hooks of the checks have left (tests/dist/test_probe_frames.py counts them);
what remains is what the first samples of a launch take.
"""

from __future__ import annotations

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from sfbench.probe.recording.content import batch_prints
from sfbench.probe.recording.loaders import SAMPLES

BUDGET = 0.01
LAUNCH_S = 8.0
"""Measuring budget of a launch by default."""


@pytest.mark.benchmark(group="checks")
def test_first_samples_cost_one_percent_of_a_launch_at_most(benchmark: BenchmarkFixture) -> None:
    torch.set_num_threads(1)
    batch = [torch.randn(32, 3, 224, 224), torch.randint(0, 1000, (32,))]

    def window() -> None:
        for _ in range(SAMPLES // 32):
            batch_prints(batch, 32)

    benchmark(window)
    assert benchmark.stats.stats.median <= BUDGET * LAUNCH_S
