"""How long the dataset takes per batch, measured where it happens: inside the loader's workers.

Forked workers install the hook and write into a small file of their own, which the rank adds up at
the end. If checkouts are compared they leave what they have imported beside it. Workers that
start by spawn do neither, and then nothing is known (never zero). Without workers the training
thread fetches by itself: what that costs its steps tell, and no hook is needed.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import struct
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch as torch_fetch

from sfbench.common.schema import CodeRoot, ModuleFile
from sfbench.probe import checkout
from sfbench.probe.hooks.taps import Taps

_ROW = struct.Struct("5d")
_DATASET, _BATCHES, _WALL_S, _CPU_S, _DELAY_S = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCost:
    """Totals over all workers of one loader."""

    batches: int
    wall_s: float
    cpu_s: float
    delay_s: float
    """Part of wall_s in which a worker was ready to run but had no core."""


class FetchHooks:
    """Times ``fetch`` of torch's dataset fetchers in forked workers."""

    def __init__(self, launch_dir: Path, rank: int, code: CodeRoot | None = None) -> None:
        """``code``: the checkout whose modules are of interest."""
        self._prefix = str(launch_dir / f"fetch-{rank}-")
        self._code = code
        self._known = 0
        """Modules of this process that have been looked at."""
        self._folder = launch_dir
        self._rank = rank
        self._tables: dict[int, _Totals] = {}
        self._pid = 0

    def install(self, taps: Taps) -> None:
        """Patch the fetchers; called in a fork."""
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            taps.wrap(getattr(torch_fetch, name), "fetch", self._around)

    def cost(self, dataset_id: int) -> FetchCost | None:
        """What fetching from a dataset cost so far; None if no worker told."""
        total = np.zeros(5)
        for path in self._folder.glob(f"fetch-{self._rank}-*"):
            table = np.fromfile(path, dtype=np.float64)
            if len(table) == 5 and table[_DATASET] == float(dataset_id):
                total += table
        if total[_BATCHES] == 0:
            return None
        return FetchCost(
            batches=int(total[_BATCHES]),
            wall_s=float(total[_WALL_S]),
            cpu_s=float(total[_CPU_S]),
            delay_s=float(total[_DELAY_S]),
        )

    def modules(self) -> list[ModuleFile]:
        """What workers of this rank have imported."""
        files = self._folder.glob(f"modules-{self._rank}-*.json")
        return [ModuleFile(**module) for path in files for module in json.loads(path.read_text())]

    def _note_modules(self) -> None:
        """A worker may import what its rank never does: in ``__getitem__``, say."""
        if self._code is None or len(sys.modules) == self._known:
            return
        self._known = len(sys.modules)
        found = [dataclasses.asdict(module) for module in checkout.imported(self._code)]
        place = self._folder / f"modules-{self._rank}-{os.getpid()}.json"
        part = place.with_suffix(".part")
        part.write_text(json.dumps(found))
        part.replace(place)

    def _around(self, original: Any) -> Any:
        def fetch(fetcher: Any, index: Any) -> Any:
            wall, cpu, delay = time.perf_counter(), time.thread_time(), run_delay_s()
            try:
                return original(fetcher, index)
            finally:
                self._totals(fetcher).add(
                    time.perf_counter() - wall, time.thread_time() - cpu, run_delay_s() - delay
                )
                self._note_modules()

        return fetch

    def _totals(self, fetcher: Any) -> _Totals:
        if self._pid != os.getpid():
            self._pid, self._tables = os.getpid(), {}
        info = get_worker_info()
        dataset = id(fetcher.dataset if info is None else info.dataset)
        totals = self._tables.get(dataset)
        if totals is None:
            place = len(self._tables)
            path = f"{self._prefix}{self._pid}-{threading.get_ident()}-{place}"
            totals = self._tables[dataset] = _Totals(path, dataset)
        return totals


class _Totals:
    """Sums of one process over one dataset, mirrored in a file after each fetch."""

    def __init__(self, path: str, dataset: int) -> None:
        self._dataset = float(dataset)
        self._batches = 0
        self._wall_s = self._cpu_s = self._delay_s = 0.0
        with open(path, "w+b") as file:  # noqa: PTH123 - a descriptor for mmap
            file.truncate(_ROW.size)
            self._file = mmap.mmap(file.fileno(), _ROW.size)

    def add(self, wall_s: float, cpu_s: float, delay_s: float) -> None:
        """One more batch."""
        self._batches += 1
        self._wall_s += wall_s
        self._cpu_s += cpu_s
        self._delay_s += delay_s
        _ROW.pack_into(
            self._file, 0, self._dataset, self._batches, self._wall_s, self._cpu_s, self._delay_s
        )


class _Schedstat(threading.local):
    """An open ``schedstat`` of the calling thread: reading costs two microseconds, opening ten."""

    pid = 0
    descriptor = -1

    def read(self) -> bytes:
        if self.pid != os.getpid():
            # A fork inherits the descriptor of its parent's thread.
            self.pid = os.getpid()
            try:
                self.descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
            except OSError:
                self.descriptor = -1
        return os.pread(self.descriptor, 64, 0) if self.descriptor >= 0 else b""


_SCHEDSTAT = _Schedstat()


def run_delay_s() -> float:
    """Seconds that this thread has been ready to run without a core (``schedstat``); 0 if unknown.

    Source: Linux, Documentation/scheduler/sched-stats.rst, second field of /proc/<pid>/schedstat.
    """
    fields = _SCHEDSTAT.read().split()
    return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0
