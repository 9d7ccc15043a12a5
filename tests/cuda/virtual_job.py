"""A training job of one rank on a virtual GPU, under the real session of the probe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from virtual import VirtualCuda

from sfbench.common.schema import RUNGS, STEP_COLUMNS, LaunchRecord, ProbeOptions, RankJob
from sfbench.probe.session import Session
from sfbench.probe.stop import StopRun
from sfbench.protocol import heartbeat, record_file

Table = npt.NDArray[np.float64]
ENOUGH = 100_000


class Samples(Dataset[torch.Tensor]):
    """Each sample takes the host some time."""

    def __init__(self, cuda: VirtualCuda, count: int, seconds: float) -> None:
        self._cuda = cuda
        self._count = count
        self.seconds = seconds

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        self._cuda.host(self.seconds)
        return torch.full((3,), float(index))


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of one step."""

    fetch: float = 0.001
    """Of the host, per batch."""
    host: float = 0.010
    """To launch forward, backward and update together."""
    forward: float = 0.030
    """Of the device, as the next two."""
    backward: float = 0.060
    update: float = 0.010
    ahead: int = 3
    """Steps that the host may be ahead of the device."""

    @property
    def device(self) -> float:
        """Of the device, all together."""
        return self.forward + self.backward + self.update


class Rank:
    """The only rank of a job. ``device`` is where it trains."""

    batch = 4

    def __init__(self, cuda: VirtualCuda, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.cuda = cuda
        self.folder = folder
        self.device = 0
        self.cost = Cost()
        self.options = ProbeOptions(rungs=("train",), seconds=20.0, block_s=2.0, warmup_steps=12)
        self.after_step: Callable[[int], None] = lambda step: None
        self.before_backward: Callable[[], None] = lambda: None
        self.model: Callable[[], torch.nn.Module] = lambda: torch.nn.Linear(3, 1)
        self.optimizer: Callable[[Any], Any] = lambda parameters: torch.optim.SGD(parameters, 1e-3)
        self.batches_per_step = 1
        self.session: Session | None = None
        self._patch = patch
        self._ends: list[float] = []
        home = lambda parameters, kind: torch.device(cuda.kind, self.device)  # noqa: E731
        for module in ("clock", "facts_of_rank"):
            patch.setattr(f"sfbench.probe.{module}.home_of", home)

    def start(self) -> Session:
        """A session with its hooks in place."""
        launch_dir = self.folder / "launch"
        launch_dir.mkdir()
        heartbeat.create(launch_dir, 1)
        job = RankJob(
            script="train.py", launch_dir=str(launch_dir), device_type=self.cuda.kind,
            probe=self.options,
        )  # fmt: skip
        self.session = Session(
            job, rank=0, local_rank=0, world_size=1,
            heartbeat=heartbeat.Heartbeat(launch_dir, 0),
        )  # fmt: skip
        self.session.install()
        return self.session

    def train(self, steps: int = ENOUGH) -> None:
        """The loop of a script, until the session has seen enough."""
        model = self.model()
        optimizer = self.optimizer(model.parameters())
        data = Samples(self.cuda, 64 * self.batch, self.cost.fetch / self.batch)
        source = self.batches(data)
        for step in range(steps):
            for _ in range(self.batches_per_step - 1):
                model(next(source)).square().mean().backward()
                self.cuda.launch(self.cost.forward + self.cost.backward, self.device)
            self.step(model, optimizer, next(source))
            self.after_step(step)

    def batches(self, data: Dataset[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Epoch after epoch."""
        loader = DataLoader(data, self.batch)
        while True:
            yield from loader

    def step(self, model: Any, optimizer: Any, inputs: torch.Tensor) -> None:
        """One step: the host launches, the device works behind it."""
        cuda, cost = self.cuda, self.cost
        if len(self._ends) >= cost.ahead:
            cuda.now = max(cuda.now, self._ends[-cost.ahead])  # the queue of launches is full
        cuda.host(cost.host / 3)
        cuda.launch(cost.forward, self.device)
        loss = model(inputs).square().mean()
        cuda.host(cost.host / 3)
        self.before_backward()
        optimizer.zero_grad()
        loss.backward()
        cuda.launch(cost.backward, self.device)
        cuda.host(cost.host / 3)
        cuda.launch(cost.update, self.device)
        optimizer.step()
        self._ends.append(cuda.streams[self.device].free_at)

    def run(self, body: Callable[[], None] | None = None) -> Run:
        """Measure the loop; what came of it."""
        session = self.session or self.start()
        try:
            (body or self.train)()
        except StopRun:
            pass
        finally:
            session.remove()
        header, table = record_file.read(self.folder / "launch" / record_file.FILE_NAME)
        return Run(record=header, table=table)

    def wanting(self, **options: Any) -> None:
        """Change some of the probe's options."""
        self.options = replace(self.options, **options)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A record and its steps."""

    record: LaunchRecord
    table: Table

    def column(self, name: str, rung: str = "train", *, measured: bool = True) -> Table:
        """A column of the steps of one rung; of the measured ones only, or of all."""
        rows = self.table[self._of("rung") == RUNGS.index(rung)]  # type: ignore[arg-type]
        if measured:
            rows = rows[rows[:, STEP_COLUMNS.index("measured")] == 1]
        return rows[:, STEP_COLUMNS.index(name)]

    def _of(self, name: str) -> Table:
        return self.table[:, STEP_COLUMNS.index(name)]
