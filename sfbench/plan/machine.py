"""What the machine offers, read without importing torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sfbench.plan.accelerators import accelerators

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Devices and cores that a sweep may use."""

    cores: tuple[int, ...]
    """Numbers of the cores that this process may run on."""
    quota: float | None
    """Cores' worth of time that the control group allows, where limited."""
    gpus: tuple[str, ...]
    """Names of the visible GPUs that torch can use."""
    gpu_kind: Literal["cuda", "xpu"] = "cuda"
    """What torch calls them."""
    gpu_problem: str | None = None
    """Why no GPU can be used, although there should be one."""
    gpu_note: str | None = None
    """What is not known of the GPUs, or which others this torch cannot use."""
    gpu_driver: str | None = None
    gpu_power_limits_w: tuple[float, ...] = ()
    omp_threads: int | None = None
    """OMP_NUM_THREADS as the person set it."""

    @property
    def usable_cores(self) -> int:
        """Whole cores that can be kept busy, at least 1."""
        quota = len(self.cores) if self.quota is None else int(self.quota)
        return max(1, min(len(self.cores), quota))


def this_machine() -> Machine:
    """Look at this machine."""
    found = accelerators()
    return Machine(
        cores=tuple(sorted(os.sched_getaffinity(0))),
        quota=_quota(_CPU_MAX),
        gpus=found.names,
        gpu_kind=found.kind,
        gpu_problem=found.problem,
        gpu_note=found.note,
        gpu_driver=found.driver,
        gpu_power_limits_w=found.power_limits_w,
        omp_threads=_threads(os.environ.get("OMP_NUM_THREADS", "")),
    )


def _threads(text: str) -> int | None:
    first = text.split(",", maxsplit=1)[0].strip()  # the others are for nested regions
    return int(first) if first.isdigit() and int(first) > 0 else None


def _quota(path: Path) -> float | None:
    try:
        limit, period = path.read_text().split()
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) / int(period)
