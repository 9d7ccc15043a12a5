"""The machine and the software of a sweep, as far as a reader needs them to repeat it."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import Environment
from sfbench.plan.machine import Machine
from sfbench.plan.planner import pinning
from sfbench.plan.sweep_plan import SweepPlan


def environment(
    plan: SweepPlan,
    machine: Machine,
    launches: Sequence[MeasuredLaunch],
    command: str,
    started_at: datetime,
) -> Environment:
    """Describe this machine, the versions in use and the script that was run."""
    backends = [m.record.loop.backend for m in launches if m.record is not None]
    return Environment(
        command=command,
        started_at=started_at.isoformat(timespec="seconds"),
        sfbench=version("sfbench"),
        python=platform.python_version(),
        torch=version("torch"),
        platform=platform.platform(),
        host=platform.node(),
        cpu=cpu_name(),
        cores=machine.usable_cores,
        memory_bytes=psutil.virtual_memory().total,
        gpus=machine.gpus,
        threads_per_device=plan.threads_per_device,
        pinned=pinning(plan, max(plan.devices), machine) is not None,
        backend=next((b for b in reversed(backends) if b), None),
        git_commit=git_commit(plan.target.script.parent),
        script_sha256=hashlib.sha256(plan.target.script.read_bytes()).hexdigest(),
        gpu_driver=machine.gpu_driver,
        gpu_power_limits_w=machine.gpu_power_limits_w,
        nccl=next((m.record.loop.nccl for m in launches if m.record and m.record.loop.nccl), None),
    )


def cpu_name() -> str:
    """Model name of the processor, as the kernel tells it; else what Python knows."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def git_commit(folder: Path) -> str | None:
    """The commit that is checked out around a folder, with ``+dirty`` where it was changed."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    return commit + ("+dirty" if _git(folder, "status", "--porcelain") else "")


def _git(folder: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
