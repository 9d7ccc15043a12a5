"""What a mark on an accelerator costs the host beside the driver's part: the Python around it.

The driver's part, and both together, `make gpu-check` measures on a machine with a GPU.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from sfbench.probe.clock import DeviceClock

MARKS = 1000
BUDGET_S = 5e-6
"""Half of what a step may cost in all."""


@pytest.mark.benchmark(group="marks")
def test_a_mark_leaves_half_of_a_steps_budget(
    benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a device whose driver takes no time at all
    event = SimpleNamespace(record=lambda stream: None)
    monkeypatch.setattr(torch, "Event", lambda device, enable_timing: event)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda index: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    home = torch.device("cuda", 0)
    monkeypatch.setattr("sfbench.probe.clock.home_of", lambda parameters, kind: home)
    clock = DeviceClock("cuda")
    clock.follow([])

    def marks() -> None:
        for _ in range(MARKS):
            clock.mark()

    benchmark(marks)
    assert benchmark.stats.stats.median / MARKS <= BUDGET_S
