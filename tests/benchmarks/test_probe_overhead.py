"""What the probe adds to a step, paired against the bare loop in one process.

One training loop of 10 ms steps alternates between bare and hooked stretches, in random order; the
difference of their medians is the probe's cost. Budget: 20 us per step and 0.5 % of a 10 ms step.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from pytest_benchmark.fixture import BenchmarkFixture
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from sfbench.common.schema import ProbeOptions, RankJob
from sfbench.probe.session import Session
from sfbench.protocol import heartbeat
from sfbench.protocol.heartbeat import Heartbeat

PAIRS = 100
STEPS = 50
STEP_S = 0.010


class Training:
    """An ordinary loop over a DataLoader with a DDP model, one rank; steps pad to ``step_s``."""

    def __init__(self) -> None:
        data = TensorDataset(torch.randn(1024, 16), torch.randint(0, 4, (1024,)))
        self.loader = DataLoader(data, batch_size=8)
        self.model = DistributedDataParallel(torch.nn.Linear(16, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.iterator = iter(self.loader)

    def step(self) -> None:
        try:
            x, y = next(self.iterator)
        except StopIteration:
            self.iterator = iter(self.loader)
            x, y = next(self.iterator)
        torch.nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def run(self, steps: int) -> float:
        """Seconds per step of busy work (the padding to 10 ms would only hide noise)."""
        self.iterator = iter(self.loader)
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - began) / steps


@pytest.fixture
def one_rank(tmp_path: Path) -> Callable[[], Session]:
    """A process group of one, and a maker of sessions that measure the train rung for ever."""
    heartbeat.create(tmp_path, 1)

    def make() -> Session:
        options = ProbeOptions(rungs=("train",), seconds=1e9, precision=1e-12, warmup_steps=0)
        job = RankJob(script=__file__, launch_dir=str(tmp_path), probe=options)
        return Session(job, rank=0, local_rank=0, world_size=1, heartbeat=Heartbeat(tmp_path, 0))

    return make


@pytest.mark.benchmark(group="probe")
def test_probe_overhead(
    benchmark: BenchmarkFixture, one_rank: Callable[[], Session], tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        training, session = Training(), one_rank()
        training.run(50)
        bare: list[float] = []
        hooked: list[float] = []

        def pair() -> None:
            for probed in random.sample([False, True], 2):
                if not probed:
                    bare.append(training.run(STEPS))
                    continue
                session.install()
                hooked.append(training.run(STEPS))
                session.remove()

        benchmark.pedantic(pair, rounds=PAIRS, warmup_rounds=3)
    finally:
        dist.destroy_process_group()
    cost_s = statistics.median(h - b for h, b in zip(hooked, bare, strict=True))
    benchmark.extra_info["probe_us_per_step"] = 1e6 * cost_s
    benchmark.extra_info["percent_of_10_ms_step"] = 100 * cost_s / STEP_S
    assert cost_s <= 20e-6
    assert cost_s <= 0.005 * STEP_S
