"""The machine and the software of a sweep, as far as a reader needs them to repeat it."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import Environment, Schedule
from sfbench.plan.machine import Machine
from sfbench.plan.planner import pinning
from sfbench.plan.sweep_plan import SweepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptState:
    """What a script was at a time."""

    sha256: str
    """Empty if it could not be read."""
    git_commit: str | None


def script_state(script: Path) -> ScriptState:
    """What a script is now."""
    try:
        digest = hashlib.sha256(script.read_bytes()).hexdigest()
    except OSError:
        digest = ""
    return ScriptState(sha256=digest, git_commit=git_commit(script.parent))


def script_warnings(before: ScriptState, script: Path) -> tuple[str, ...]:
    """What is to be said where a script is no longer what it was when measuring began."""
    now = script_state(script)
    if now.sha256 == before.sha256:
        return ()
    happened = "changed" if now.sha256 else "removed"
    return (
        f"the script was {happened} while it was measured: its launches may not all have run the "
        "same code. The SHA-256 that is stored is that of its beginning. Measure it again",
    )


def environment(
    plan: SweepPlan,
    machine: Machine,
    launches: Sequence[MeasuredLaunch],
    command: str,
    started_at: datetime,
    script: ScriptState | None = None,
) -> Environment:
    """Describe this machine, the versions in use and the script that was run.

    ``script``: what it was when measuring began; None: what it is.
    """
    script = script or script_state(plan.target.script)
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
        git_commit=script.git_commit,
        script_sha256=script.sha256,
        gpu_driver=machine.gpu_driver,
        gpu_power_limits_w=machine.gpu_power_limits_w,
        nccl=next((m.record.loop.nccl for m in launches if m.record and m.record.loop.nccl), None),
    )


def schedule(plan: SweepPlan, launches: Sequence[MeasuredLaunch]) -> Schedule:
    """How the sweep divided its time."""
    return Schedule(
        seconds=plan.seconds,
        precision=plan.precision,
        rounds=plan.rounds,
        warmup_steps=plan.warmup_steps,
        rungs=plan.rungs,
        seeds=tuple(one.plan.seed for one in launches),
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
