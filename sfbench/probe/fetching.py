"""How long the dataset takes per batch, measured where it happens: inside the loader's workers.

Forked workers inherit the hook and write into a small file of their own, which the rank adds up at
the end. Workers that start by spawn do not, and then nothing is known (never zero).
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch as torch_fetch

from sfbench.probe.patches import Patches

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
    """Times ``fetch`` of torch's dataset fetchers, in this process and in its forks."""

    def __init__(self, launch_dir: Path, rank: int) -> None:
        self._prefix = str(launch_dir / f"fetch-{rank}-")
        self._folder = launch_dir
        self._rank = rank
        self._tables: dict[int, npt.NDArray[np.float64]] = {}
        self._pid = 0

    def install(self, patches: Patches) -> None:
        """Patch the fetchers. Left in place in forked workers."""
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            patches.wrap(getattr(torch_fetch, name), "fetch", self._around)

    def cost(self, dataset_id: int) -> FetchCost | None:
        """What fetching from a dataset cost so far; None where no worker told."""
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

    def _around(self, original: Any) -> Any:
        def fetch(fetcher: Any, index: Any) -> Any:
            wall, cpu, delay = time.perf_counter(), time.thread_time(), run_delay_s()
            try:
                return original(fetcher, index)
            finally:
                row = self._row(fetcher)
                row[_BATCHES] += 1
                row[_WALL_S] += time.perf_counter() - wall
                row[_CPU_S] += time.thread_time() - cpu
                row[_DELAY_S] += run_delay_s() - delay

        return fetch

    def _row(self, fetcher: Any) -> npt.NDArray[np.float64]:
        if self._pid != os.getpid():
            self._pid, self._tables = os.getpid(), {}
        info = get_worker_info()
        dataset = id(fetcher.dataset if info is None else info.dataset)
        if dataset not in self._tables:
            path = f"{self._prefix}{self._pid}-{threading.get_ident()}-{len(self._tables)}"
            np.array([dataset, 0, 0, 0, 0], dtype=np.float64).tofile(path)
            self._tables[dataset] = np.memmap(path, dtype=np.float64, mode="r+")
        return self._tables[dataset]


def run_delay_s() -> float:
    """Seconds that this thread has been ready to run without a core (``schedstat``); 0 if unknown.

    Source: Linux, Documentation/scheduler/sched-stats.rst, second field of /proc/<pid>/schedstat.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:  # noqa: PTH123 - in a hot path
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
