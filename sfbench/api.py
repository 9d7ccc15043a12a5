"""``sfbench.sweep`` for notebooks and tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sfbench.collect.load import Results, load
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
