"""What the probe adds to a step: its Python frames, counted exactly, on every rung."""

from __future__ import annotations

import gc
import statistics
import sys
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
        self.batches: Any = iter(self.loader)

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
        else:
            self._loss(x, y)
            self.optimizer.step()
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
    options = ProbeOptions(
        rungs=rungs, seconds=1e9, precision=1e-12, warmup_steps=10, block_s=1e9
    )
    job = RankJob(script=__file__, launch_dir=str(folder), probe=options)
    return Session(job, rank=0, local_rank=0, world_size=1, heartbeat=Heartbeat(folder, 0))


@pytest.mark.parametrize("kind", ["plain", "scaler", "closure"])
def test_a_measured_step_costs_eight_frames_at_most(one_rank: Path, kind: str) -> None:
    # GIVEN a loop, counted bare
    training = Training(kind)
    for _ in range(20):
        training.step()
    bare = statistics.median(training.frames()[0] for _ in range(20))
    # WHEN it is measured on the train rung, from the first step of the launch on
    session = session_of(one_rank, ("train",))
    session.install()
    try:
        training.batches = iter(training.loader)
        added = [training.frames()[0] - bare for _ in range(700)]
        began = sum(1 for _ in range(1) if session.command.block >= 0)
    finally:
        session.remove()
    # THEN discovery and warmup over, every single step costs as little, early and late
    assert began == 1
    assert max(added[20:100]) <= BUDGET
    assert max(added[500:]) <= BUDGET
    # THEN with the probe gone nothing is left
    assert training.frames()[0] == bare


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
