"""Runs a case through the sweep that a person runs, on a machine that has nothing else to do."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from matrix import Case

from sfbench.common.schema import LADDER, SweepResult
from sfbench.plan.machine import this_machine
from sfbench.plan.sweep_plan import SweepPlan
from sfbench.plan.targets import resolve_target
from sfbench.run.observer import SilentObserver
from sfbench.run.sweep import run_sweep

QUIET = 0.25
"""Part of the cores that other programs may use, right before a case and right after it."""
LOOK_S = 1.0
WAIT_S = 60.0
"""For a quiet machine, before each attempt; then the case is measured all the same."""
ATTEMPTS = 2
"""A case that others disturbed, or that gave no figures, is measured again; what was found plays no
part in that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a sweep made of a case."""

    case: Case
    result: SweepResult
    busy: float
    """Part of the cores that other programs used around it."""
    refused: tuple[str, ...] = ()
    """Why earlier attempts gave no figures."""

    @property
    def errors(self) -> tuple[str, ...]:
        """Of points without figures."""
        return tuple(str(p.error) for p in self.result.points if p.status != "ok")


def measure(case: Case, *, wait_s: float = WAIT_S, attempts: int = ATTEMPTS) -> Measured:
    """Sweep a case, until other programs leave it alone; of the attempts, the quietest."""
    made: list[Measured] = []
    while len(made) < attempts and not any(one.busy <= QUIET and not one.errors for one in made):
        made.append(_measure(case, wait_s))
    best = min(made, key=lambda one: (len(one.errors), one.busy))
    others = [error for one in made if one is not best for error in one.errors]
    return replace(best, refused=tuple(others))


def _measure(case: Case, wait_s: float) -> Measured:
    before = _wait_until_quiet(wait_s)
    result = _sweep(case)
    return Measured(case=case, result=result, busy=max(before, _busy()))


def _sweep(case: Case) -> SweepResult:
    """One round; the whole time is used."""
    with tempfile.TemporaryDirectory(prefix="sfbench-faults-") as folder:
        plan = SweepPlan(
            target=resolve_target(case.target, case.args),
            devices=case.devices,
            seconds=case.measuring_s,
            precision=1e-9,
            rounds=1,
            rungs=LADDER,
            name=case.name,
            output=Path(folder),
        )
        return run_sweep(plan, this_machine(), SilentObserver(), command=case.name).result


def _wait_until_quiet(wait_s: float) -> float:
    """What others use in the end."""
    until = time.monotonic() + wait_s
    while (busy := _busy()) > QUIET and time.monotonic() < until:
        pass
    return busy


def _busy() -> float:
    """Part of the cores in use just now."""
    return float(psutil.cpu_percent(interval=LOOK_S)) / 100
