"""What watching for faults adds to a measured step, paired against the same loop without.

Budget: 1 % of a sweep. Once the first samples and updates have been seen, hooks only count.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from pytest_benchmark.fixture import BenchmarkFixture
from test_probe_overhead import STEP_S, STEPS, Training, one_rank

from sfbench.probe.recording.content import batch_prints
from sfbench.probe.recording.loaders import SAMPLES
from sfbench.probe.session import Session

PAIRS = 60
BUDGET = 0.01
LAUNCH_S = 8.0
"""Measuring budget of a launch by default."""

__all__ = ["one_rank"]


class NoWitness:
    """Sees nothing."""

    class meetings:
        joins = shares_model = False

        @staticmethod
        def all_come() -> bool:
            return True

        may_decide = all_come

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def blind(session: Session) -> Session:
    """The same session without a witness."""
    session.witness = NoWitness()  # type: ignore[assignment]
    session.models.before = lambda model, batch: False
    return session


@pytest.mark.benchmark(group="checks")
def test_watching_costs_one_percent_at_most(
    benchmark: BenchmarkFixture, one_rank: Callable[[], Session], tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    try:
        training, sessions = Training(), {True: one_rank(), False: blind(one_rank())}
        training.run(50)

        def pair() -> None:
            for watches in random.sample([False, True], 2):
                sessions[watches].install()
                seconds[watches].append(training.run(STEPS))
                sessions[watches].remove()

        benchmark.pedantic(pair, rounds=PAIRS, warmup_rounds=20)
    finally:
        dist.destroy_process_group()
    cost_s = statistics.median(w - b for w, b in zip(seconds[True], seconds[False], strict=True))
    benchmark.extra_info["watching_us_per_step"] = 1e6 * cost_s
    assert cost_s <= BUDGET * STEP_S


@pytest.mark.benchmark(group="checks")
def test_first_samples_cost_one_percent_of_a_launch_at_most(benchmark: BenchmarkFixture) -> None:
    torch.set_num_threads(1)
    batch = [torch.randn(32, 3, 224, 224), torch.randint(0, 1000, (32,))]

    def window() -> None:
        for _ in range(SAMPLES // 32):
            batch_prints(batch, 32)

    benchmark(window)
    assert benchmark.stats.stats.median <= BUDGET * LAUNCH_S
