"""``sfbench.sweep`` for notebooks, and the gate for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sfbench.collect.load import Results, load
from sfbench.collect.result import load_result
from sfbench.errors import UsageError
from sfbench.gate.model import GateOptions, GateReport
from sfbench.gate_progress import SilentGateObserver
from sfbench.gating import gate_commit, gate_job, gate_result
from sfbench.plan.machine import this_machine
from sfbench.plan.make import make_plan
from sfbench.plan.settings import load_settings
from sfbench.plan.targets import resolve_target
from sfbench.progress import SilentObserver
from sfbench.sweeps import run_sweep


def sweep(target: str | Path, args: Sequence[str] = (), **options: Any) -> Results:
    """Run a sweep and open its result.

    ``options`` are those of ``sfbench sweep``, with underscores: ``devices=[1, 2]``, ``seconds=8``.

    Raises:
        SfbenchError: as the command would say.
    """
    settings = load_settings({"target": str(target), **options}, Path.cwd())
    machine = this_machine()
    plan = make_plan(
        settings, resolve_target(settings.target, tuple(args)), machine, datetime.now()
    )
    called = ", ".join(f"{key}={value!r}" for key, value in options.items())
    command = f"sfbench.sweep({str(target)!r}, {list(args)!r}{', ' * bool(called)}{called})"
    return load(run_sweep(plan, machine, SilentObserver(), command=command).folder)


def gate(
    target: str | Path,
    args: Sequence[str] = (),
    *,
    base: str | None = None,
    baseline: str | Path | None = None,
    **options: Any,
) -> GateReport:
    """Compare the working tree with the commit ``base``, or with the stored result ``baseline``.

    ``options`` are those of ``sfbench gate``, with underscores and plain values: ``devices=2``,
    ``margin=0.08``, ``min_efficiency=0.85``, ``budget=180``, ``paths=["data/**"]``.

    Raises:
        SfbenchError: as the command would say. A side that is broken or cannot be measured is told
            by the verdict.
    """
    if (base is None) == (baseline is None):
        raise UsageError("give one of base and baseline to compare with")
    paths = tuple(options.pop("paths", ()))
    names = {"margin": "margin", "min_efficiency": "min_efficiency", "seconds": "seconds",
             "budget": "budget_s"}  # fmt: skip
    asked = {field: options.pop(name) for name, field in names.items() if name in options}
    job = gate_job(
        {"target": str(target), **options},
        tuple(args),
        GateOptions(**asked),
        command=f"sfbench.api.gate({str(target)!r})",
    )
    if baseline is not None:
        return gate_result(job, load_result(Path(baseline)), SilentGateObserver()).report
    return gate_commit(job, base or "", SilentGateObserver(), paths=paths).report
