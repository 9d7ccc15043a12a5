"""A real sweep of the checks' own job, whose launches run on a virtual GPU, in this process.

All is real but the device and the launcher: planning, the job's own code on a device, the probe's
session in it, its record, the analysis and the result. Of a launch of two ranks the second one is
made of what the first recorded.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import job
import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader
from virtual import VirtualCuda

from sfbench.common.schema import RUNGS, STEP_COLUMNS, AllReduceTime, LaunchRecord
from sfbench.launch.outcome import LaunchError, LaunchOutcome
from sfbench.plan.accelerators import Accelerators
from sfbench.plan.sweep_plan import NodeJob
from sfbench.probe.session import Session
from sfbench.probe.stop import Refused, StopRun
from sfbench.protocol import heartbeat, record_file

_RANK = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "localhost", "MASTER_PORT": "0",
}  # fmt: skip
_COLUMN = {name: i for i, name in enumerate(STEP_COLUMNS)}
AHEAD = 3
"""Steps that the host may be ahead of the device."""
Second = Callable[[LaunchRecord, Any], tuple[LaunchRecord, Any]]


class OnHost(TorchFunctionMode):
    """What a script puts on the virtual GPU lies on the host; what it takes there is counted."""

    def __init__(self, cuda: VirtualCuda) -> None:
        super().__init__()
        self._cuda = cuda

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.empty and _is_cuda(kwargs.get("device")):
            self._cuda.allocate(args[0] * kwargs["dtype"].itemsize)
            return function(1, dtype=kwargs["dtype"])
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = torch.device("cpu")
        args = tuple(torch.device("cpu") if _is_cuda(value) else value for value in args)
        return function(*args, **kwargs)


def _is_cuda(value: Any) -> bool:
    return isinstance(value, torch.device) and value.type == "cuda"


class Timed(nn.Module):
    """A small network whose forward keeps the virtual GPU busy, by the rows of a batch."""

    def __init__(self, cuda: VirtualCuda, width: int, per_row_s: float) -> None:
        super().__init__()
        self._cuda = cuda
        self._per_row_s = per_row_s
        self._ends: deque[float] = deque(maxlen=AHEAD)
        self.inner = nn.Linear(width, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        cuda = self._cuda
        if len(self._ends) == AHEAD and torch.is_grad_enabled():
            cuda.now = max(cuda.now, self._ends[0])
        cuda.host(0.002)
        cuda.launch(0.010 + self._per_row_s * len(rows), 0)
        if torch.is_grad_enabled():
            self._ends.append(cuda.streams[0].free_at)
        output: torch.Tensor = self.inner(rows)
        return output


class Graph:
    """As ``torch.cuda.CUDAGraph``: what is launched while it is made is kept."""

    def capture_begin(self) -> None:
        """What is launched from here on is kept."""

    def capture_end(self) -> None:
        """Up to here."""

    def replay(self) -> None:
        """Nothing of it calls a hook."""


class VirtualSweeps:
    """Stands in the launcher's place. ``second``: makes a record of two ranks of one of one."""

    def __init__(self, cuda: VirtualCuda, patch: pytest.MonkeyPatch) -> None:
        self.cuda = cuda
        self.second: Second = two_ranks
        self._patch = patch
        self._at_exit: list[Any] = []
        home = lambda parameters, kind: torch.device("cuda", 0)  # noqa: E731
        for module in ("clock", "facts_of_rank"):
            patch.setattr(f"sfbench.probe.{module}.home_of", home)
        found = Accelerators(names=("H200", "H200"), driver="570.1")
        patch.setattr("sfbench.plan.machine.accelerators", lambda: found)
        patch.setattr("sfbench.run.sweep.running", self._running)
        for name, value in _RANK.items():
            patch.setenv(name, value)
        self._on_virtual()

    def _on_virtual(self) -> None:
        """The job's own code, on a device that is not there."""
        patch = self._patch
        opened, ddp = dist.init_process_group, job.DDP
        store = lambda: {"store": dist.HashStore(), "rank": 0, "world_size": 1}  # noqa: E731
        patch.setattr(dist, "init_process_group", lambda backend: opened("gloo", **store()))
        patch.setattr(job, "DDP", lambda net, device_ids: ddp(net))
        patch.setattr(job, "network", self._network)
        patch.setattr(job, "WIDE", 512)
        patch.setattr(job, "DataLoader", _loader)
        patch.setattr(job.atexit, "register", lambda *call: self._at_exit.append(call))
        patch.setattr(torch.cuda, "make_graphed_callables", lambda net, samples: net)
        patch.setattr(torch.cuda, "CUDAGraph", Graph)
        patch.setattr(torch.cuda, "graph", self._capturing)
        patch.setattr(torch.Tensor, "item", self._item(torch.Tensor.item))
        patch.setattr(torch, "autocast", lambda *args, **options: torch.set_grad_enabled(True))
        adamw = torch.optim.AdamW  # which takes no graph on the host
        patch.setattr(torch.optim, "AdamW", lambda weights, lr, capturable: adamw(weights, lr))

    def _network(self, args: Any, device: torch.device) -> nn.Module:
        assert device == torch.device("cuda", 0)
        width = job.WIDE if args.mode == "copies" else job.NARROW
        return Timed(self.cuda, width, 2e-5)

    def _item(self, original: Any) -> Any:
        def item(tensor: torch.Tensor) -> Any:
            self.cuda.item(0)
            return original(tensor)

        return item

    @contextmanager
    def _capturing(self, graph: Any) -> Iterator[None]:
        graph.capture_begin()
        self.cuda.capturing = True
        try:
            yield
        finally:
            self.cuda.capturing = False
            graph.capture_end()

    @contextmanager
    def _running(self, *_: Any) -> Iterator[Any]:
        yield self._run

    def _run(self, node_job: NodeJob, progressed: Any) -> LaunchOutcome:
        """One launch."""
        folder = Path(node_job.job.launch_dir)
        heartbeat.create(folder, 1)
        session = Session(
            node_job.job, rank=0, local_rank=0, world_size=1,
            heartbeat=heartbeat.Heartbeat(folder, 0),
        )  # fmt: skip
        self._patch.setattr(sys, "argv", [node_job.job.script, *node_job.job.args])
        session.install()
        error = None
        try:
            with OnHost(self.cuda):
                job.main()
        except StopRun:
            pass
        except Refused as refusal:
            error = _refused(refusal)
        finally:
            session.remove()
            if dist.is_initialized():
                dist.destroy_process_group()
            while self._at_exit:
                call, *given = self._at_exit.pop()
                call(*given)
        record = folder / record_file.FILE_NAME
        if error is None and node_job.devices == 2:
            record_file.write(folder, *self.second(*record_file.read(record)))
        return LaunchOutcome(
            status="ok" if error is None else "failed", record=record if error is None else None,
            error=error, notes=(), start_s=time.monotonic(), wall_s=1.0,
        )  # fmt: skip


def _loader(data: Any, rows: int, **options: Any) -> Any:
    """In this process, and nothing is pinned."""
    options |= {"num_workers": 0, "persistent_workers": False, "pin_memory": False}
    return DataLoader(data, rows, **options)


def _refused(refusal: Refused) -> LaunchError:
    return LaunchError(
        kind=refusal.kind, rank=0, message=str(refusal), last_lines=(), log=None, script_fault=True
    )


def two_ranks(
    header: LaunchRecord, table: Any, slower: float = 1.0, synced_s: float = 0.0
) -> tuple[LaunchRecord, Any]:
    """A second rank, so much slower alone; together both take as long, and so much more to sync."""
    solo = RUNGS.index("solo")
    second, first = table.copy(), table.copy()
    second[:, _COLUMN["rank"]] = 1
    on_solo = table[:, _COLUMN["rung"]] == solo
    second[on_solo, _COLUMN["turn"]] = 1
    for rows, ratio in ((first, 1.0), (second, slower)):
        meets = np.isin(rows[:, _COLUMN["rung"]], (RUNGS.index("train"), RUNGS.index("cached")))
        rows[:, _COLUMN["step_s"]] *= np.where(meets, slower, ratio)
        rows[meets, _COLUMN["step_s"]] += synced_s
    rest = [rows[~np.isin(rows[:, _COLUMN["rung"]], _ALONE)] for rows in (first, second)]
    (info,), (load,), (seen,) = header.ranks, header.loads, header.evidence
    other = replace(info, rank=1, local_rank=1, device="cuda:1")
    whole = replace(
        header, world_size=2, ranks=(replace(info, device="cuda:0"), other),
        loads=(load, replace(load, rank=1)), evidence=(seen, replace(seen, rank=1)),
        all_reduce=tuple(AllReduceTime(bytes=n, seconds=1e-4 + n * 2e-9) for n in (4, 10**6)),
        loop=replace(header.loop, bucket_bytes=(10**6,), wrapper="ddp"),
    )  # fmt: skip
    return whole, np.concatenate(rest)


_ALONE = (RUNGS.index("half"), RUNGS.index("double"))
"""Rungs of one device only."""
