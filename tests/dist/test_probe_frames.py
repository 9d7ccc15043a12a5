"""What the probe adds to a step: its Python frames, counted exactly, on every rung."""

from __future__ import annotations

import gc
import queue
import statistics
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import sfbench
from sfbench.common.schema import RUNGS, ProbeOptions, RankJob, Rung
from sfbench.probe.session import Session
from sfbench.protocol import heartbeat
from sfbench.protocol.heartbeat import Heartbeat

BUDGET = 8
"""Frames per step and rank in measured blocks."""
PACKAGE = str(Path(sfbench.__file__).parent)


class Training:
    """An ordinary loop with a DDP model; epochs are longer than the test."""

    def __init__(self, kind: str) -> None:
        data = TensorDataset(torch.randn(16000, 16), torch.randint(0, 4, (16000,)))
        self.loader = DataLoader(data, batch_size=8)
        self.model = DistributedDataParallel(torch.nn.Linear(16, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.scaler = torch.amp.GradScaler("cpu", enabled=kind == "scaler")
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0)
        self.kind = kind
        self.other = DistributedDataParallel(torch.nn.Linear(16, 4))
        self.others = torch.optim.SGD(self.other.parameters(), lr=0.01)
        self.total = torch.zeros(1)
        self.batches: Any = iter(())
        self.start()

    def start(self) -> None:
        """Begin a pass over the data, in a thread of its own if the loop has one."""
        if self.kind != "thread":
            self.batches = iter(self.loader)
            return
        fetched: queue.Queue[Any] = queue.Queue(2)

        def fetch() -> None:
            for batch in self.loader:
                fetched.put(batch)

        threading.Thread(target=fetch, daemon=True).start()
        self.batches = iter(fetched.get, None)

    def _loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        self.scaler.scale(loss).backward()
        return loss

    def step(self) -> None:
        x, y = next(self.batches)
        if self.kind == "closure":
            self.optimizer.step(lambda: self._loss(x, y).item())
        elif self.kind == "scaler":
            self._loss(x, y)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif self.kind == "two models":
            torch.nn.functional.cross_entropy(self.other(x), y).backward()
            self.others.step()
            self._loss(x, y)
            self.optimizer.step()
        elif self.kind == "accumulation":
            with self.model.no_sync():
                self._loss(x, y)
            self._loss(*next(self.batches))
            self.optimizer.step()
        elif self.kind == "two updates":
            self._loss(x, y)
            self.optimizer.step()
            self._loss(x, y)
            self.optimizer.step()
        else:
            if self.kind == "teacher":
                with torch.no_grad():
                    self.model(x)
            self._loss(x, y)
            self.optimizer.step()
            if self.kind == "two optimizers":
                self.others.step()
            if self.kind == "own collective":
                dist.all_reduce(self.total)
        self.scheduler.step()
        self.optimizer.zero_grad()

    def frames(self) -> tuple[int, int]:
        """Python frames of one step: all, and those of the probe's own code."""
        seen = [0, 0]

        def count(frame: FrameType, event: str, arg: Any) -> None:
            if event == "call":
                seen[0] += 1
                seen[1] += frame.f_code.co_filename.startswith(PACKAGE)

        sys.setprofile(count)
        try:
            self.step()
        finally:
            sys.setprofile(None)
        return seen[0], seen[1]


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[Path]:
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    heartbeat.create(tmp_path, 1)
    # What sessions before have left would be collected in some step.
    gc.collect()
    gc.disable()
    yield tmp_path
    gc.enable()
    dist.destroy_process_group()


def session_of(folder: Path, rungs: tuple[Rung, ...]) -> Session:
    options = ProbeOptions(rungs=rungs, seconds=1e9, precision=1e-12, warmup_steps=10, block_s=1e9)
    job = RankJob(script=__file__, launch_dir=str(folder), probe=options)
    return Session(job, rank=0, local_rank=0, world_size=1, heartbeat=Heartbeat(folder, 0))


OF_EACH = {
    "plain": 6, "scaler": 8, "closure": 6, "thread": 6, "own collective": 8, "teacher": 7,
    # A scheduler is waited for that steps the other optimizer, at the end of an epoch perhaps.
    "two optimizers": 9, "two models": 11,
    "accumulation": 10,
    "two updates": 29,
}  # fmt: skip
"""Frames of each shape of loop: two each for a batch, for forward and backward, for an update."""


@pytest.mark.parametrize("kind", OF_EACH)
def test_a_measured_step_costs_as_few_frames_as_its_shape_needs(one_rank: Path, kind: str) -> None:
    # GIVEN a loop, counted bare
    training = Training(kind)
    for _ in range(20):
        training.step()
    # Waiting for a thread takes as many frames as it happens to: there, those of the probe alone.
    of = 1 if kind == "thread" else 0
    bare = statistics.median(training.frames()[of] for _ in range(20))
    # WHEN it is measured on the train rung, from the first step of the launch on
    session = session_of(one_rank, ("train",))
    session.install()
    try:
        training.start()
        added = [training.frames()[of] - bare for _ in range(700 if kind == "plain" else 120)]
        began = sum(1 for _ in range(1) if session.command.block >= 0)
    finally:
        session.remove()
    # THEN discovery and warmup over, every single step costs as little, early and late
    assert began == 1
    assert max(added[20:100]) <= OF_EACH[kind]
    assert max(added[500:], default=0) <= OF_EACH[kind]
    # THEN with the probe gone nothing is left
    assert training.frames()[of] == bare


@pytest.mark.parametrize("kind", ["plain", "scaler"])
def test_every_rung_costs_eight_frames_at_most(one_rank: Path, kind: str) -> None:
    # GIVEN blocks on every rung
    training = Training(kind)
    session = session_of(one_rank, ("train", "cached", "unsynced", "solo"))
    session.install()
    own: dict[str, list[int]] = defaultdict(list)
    try:
        training.batches = iter(training.loader)
        while len(own) < 4 or min(map(len, own.values())) < 40:
            before, unmeasured = session.command, session.unmeasured
            frames = training.frames()[1]
            if session.command is before and before.block >= 0 and not unmeasured:
                own[RUNGS[before.rung]].append(frames)
    finally:
        session.remove()
    # THEN in every measured step the probe's own code runs in as few frames; what starts a block
    # or a replay shows in the steps that pass before
    assert {rung: max(counts) for rung, counts in own.items() if max(counts) > BUDGET} == {}
