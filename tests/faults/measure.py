"""Runs a case through the sweep that a person runs, on a machine that has nothing else to do."""

from __future__ import annotations

import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from matrix import Case

from sfbench.plan.machine import this_machine
from sfbench.plan.model import SweepPlan
from sfbench.plan.targets import resolve_target
from sfbench.progress import SilentObserver
from sfbench.schema import LADDER, SweepResult
from sfbench.sweeps import run_sweep

QUIET = 0.15
"""Part of the cores that other programs may use, before a case and during it."""
WAIT_S = 120.0
"""For a quiet machine, before each attempt; then the case is measured all the same."""
ATTEMPTS = 3
"""A case that others disturbed is measured again; what it found plays no part in that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a sweep made of a case."""

    case: Case
    result: SweepResult
    busy: float
    """Part of the cores that other programs used meanwhile."""


def measure(case: Case, *, wait_s: float = WAIT_S, attempts: int = ATTEMPTS) -> Measured:
    """Sweep a case, until other programs leave it alone; of the attempts, the quietest."""
    made: list[Measured] = []
    while len(made) < attempts and not any(one.busy <= QUIET for one in made):
        _wait_until_quiet(wait_s)
        made.append(_measure(case))
    return min(made, key=lambda one: one.busy)


def _measure(case: Case) -> Measured:
    began_s, all_s, own_s = time.monotonic(), _busy_s(), _own_s()
    result = _sweep(case)
    others_s = (_busy_s() - all_s) - (_own_s() - own_s)
    cores = psutil.cpu_count() or 1
    busy = max(0.0, others_s) / (cores * (time.monotonic() - began_s))
    return Measured(case=case, result=result, busy=busy)


def _sweep(case: Case) -> SweepResult:
    """One round; the whole time is used."""
    with tempfile.TemporaryDirectory(prefix="sfbench-faults-") as folder:
        plan = SweepPlan(
            target=resolve_target("emulated", case.args),
            devices=case.devices,
            seconds=case.measuring_s,
            precision=1e-9,
            rounds=1,
            rungs=LADDER,
            name=case.name,
            output=Path(folder),
        )
        return run_sweep(plan, this_machine(), SilentObserver(), command=case.name).result


def _wait_until_quiet(wait_s: float) -> None:
    until = time.monotonic() + wait_s
    while time.monotonic() < until and psutil.cpu_percent(interval=1.0) / 100 > QUIET:
        pass


def _busy_s() -> float:
    """Core seconds that the machine has spent working."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def _own_s() -> float:
    """Core seconds of this process and of all that it started and that has ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
