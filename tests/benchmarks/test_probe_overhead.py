"""What the probe adds to a measured step, paired against the bare loop in one process.

One training loop alternates between bare and hooked stretches, in random order; each step is timed
by itself, and the difference of the stretches' medians is the probe's cost. Warm and with a cache
that is thrown out before each step; in the first 100 steps of a launch and after 500. Budget: 10 us
per step. How many Python frames it is, a test counts exactly (tests/dist/test_probe_frames.py).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
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

PAIRS = 40
EARLY, LATE = 100, 500
"""Steps of a launch: the first ones, and those after which nothing is new."""
SETTLED = 20
"""Discovery and warmup, which are no measured steps."""
BUDGET_S = 10e-6
STEP_S = 0.010
CACHE_BYTES = 32 * 2**20

Make = Callable[[], Session]


class Training:
    """An ordinary loop over a DataLoader with a DDP model, one rank."""

    def __init__(self) -> None:
        data = TensorDataset(torch.randn(80000, 16), torch.randint(0, 4, (80000,)))
        self.loader = DataLoader(data, batch_size=8)
        self.model = DistributedDataParallel(torch.nn.Linear(16, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.batches: Any = iter(self.loader)
        self.other = np.zeros(CACHE_BYTES // 8)

    def step(self) -> None:
        x, y = next(self.batches)
        torch.nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def run(self, steps: int, *, thrash: bool = False) -> list[float]:
        """Seconds of each step."""
        self.batches = iter(self.loader)
        seconds = []
        for _ in range(steps):
            if thrash:
                self.other += 1.0
            began = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - began)
        return seconds


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[Make]:
    """A process group of one, and a maker of sessions that measure the train rung for ever."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    heartbeat.create(tmp_path, 1)

    def make() -> Session:
        options = ProbeOptions(
            rungs=("train",), seconds=1e9, precision=1e-12, warmup_steps=10, block_s=1e9
        )
        job = RankJob(script=__file__, launch_dir=str(tmp_path), probe=options)
        return Session(job, rank=0, local_rank=0, world_size=1, heartbeat=Heartbeat(tmp_path, 0))

    yield make
    dist.destroy_process_group()


def early(training: Training, make: Make, *, thrash: bool) -> float:
    """One stretch of a new launch."""
    session = make()
    session.install()
    try:
        return statistics.median(training.run(EARLY, thrash=thrash)[SETTLED:])
    finally:
        session.remove()


def late(training: Training, session: Session, *, thrash: bool) -> float:
    """One stretch of a launch that has long been measuring."""
    session.install()
    try:
        return statistics.median(training.run(EARLY, thrash=thrash)[SETTLED:])
    finally:
        session.remove()


@pytest.mark.benchmark(group="probe")
@pytest.mark.parametrize("thrash", [False, True], ids=["warm", "thrashed"])
@pytest.mark.parametrize("when", ["first", "after"])
def test_probe_overhead(
    benchmark: BenchmarkFixture, one_rank: Make, when: str, thrash: bool
) -> None:
    training, session = Training(), one_rank()
    session.install()
    training.run(LATE + SETTLED)
    session.remove()
    bare: list[float] = []
    hooked: list[float] = []

    def pair() -> None:
        for probed in random.sample([False, True], 2):
            if not probed:
                bare.append(statistics.median(training.run(EARLY, thrash=thrash)[SETTLED:]))
            elif when == "first":
                hooked.append(early(training, one_rank, thrash=thrash))
            else:
                hooked.append(late(training, session, thrash=thrash))

    benchmark.pedantic(pair, rounds=PAIRS, warmup_rounds=2)
    cost_s = statistics.median(h - b for h, b in zip(hooked, bare, strict=True))
    benchmark.extra_info["probe_us_per_step"] = 1e6 * cost_s
    benchmark.extra_info["bare_us_per_step"] = 1e6 * statistics.median(bare)
    assert cost_s <= BUDGET_S
