"""Runs a case through the sweep that a person runs, on a machine that has nothing else to do."""

from __future__ import annotations

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

QUIET = 0.25
"""Part of the cores that others may use before a case starts."""
WAIT_S = 60.0
"""For a quiet machine; then the case is measured all the same, and the page says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a sweep made of a case."""

    case: Case
    result: SweepResult
    busy: float
    """Part of the cores that others used right before."""


def measure(case: Case, *, wait_s: float = WAIT_S) -> Measured:
    """Sweep a case in one round; the whole time is used."""
    busy = _quiet(wait_s)
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
        finished = run_sweep(plan, this_machine(), SilentObserver(), command=case.name)
    return Measured(case=case, result=finished.result, busy=busy)


def _quiet(wait_s: float) -> float:
    """Wait until others use little; answers what they use."""
    until = time.monotonic() + wait_s
    while True:
        busy = psutil.cpu_percent(interval=1.0) / 100
        if busy <= QUIET or time.monotonic() > until:
            return busy
