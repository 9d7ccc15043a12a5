"""The gate's commands in real git repositories; only the launches are made up.

A made-up launch reads in the script that it would run how long its steps take.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import StepTable, launch_record, outcome

from sfbench.cli import app
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import LaunchRecord, LoopInfo
from sfbench.launch.outcome import LaunchError
from sfbench.plan.sweep_plan import LaunchPlan, SweepPlan
from sfbench.protocol.records import CodeRoot, ModuleFile

JITTER = (1.0, 1.01, 0.99, 1.005, 0.995, 1.002)
SCRIPT = """\
TRAIN_MS = 12
CACHED_MS = 10
SOLO_MS = 9
"""
SLOWER = SCRIPT.replace("12", "20")


class NoLauncher:
    """Starts nothing."""

    def __init__(self, **options: object) -> None:
        self.run = None

    def __enter__(self) -> NoLauncher:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to end."""


@dataclass(slots=True)
class Launches:
    """Made-up launches, counted."""

    plans: list[SweepPlan] = field(default_factory=list)
    ran: list[tuple[Path, str]] = field(default_factory=list)
    """Path and text of each launch's script."""
    cached_factor: dict[int, float] = field(default_factory=dict)
    """Launch -> by how much all of it is slower."""
    foreign: bool = False
    backend: str = "gloo"
    nccl: str | None = None
    solo: bool = True
    unsteady: set[int] = field(default_factory=set)
    """Launches that never settle."""

    def run(
        self,
        plan: SweepPlan,
        launch: LaunchPlan,
        logs: Path,
        *args: object,
        code: CodeRoot | None = None,
    ) -> MeasuredLaunch:
        """Stands in for ``sfbench.run.sweep.run_launch``."""
        (logs / launch.log_name).mkdir(parents=True, exist_ok=True)
        number = len(self.plans)
        self.plans.append(plan)
        text = plan.target.script.read_text()
        self.ran.append((plan.target.script, text))
        for word, fault in (("raise", True), ("break", False)):
            if word in text:
                return _failed(launch, fault=fault)
        speed = JITTER[number % len(JITTER)] * self.cached_factor.get(number, 1.0)
        table = self._table(plan, text, launch.devices, speed, unsteady=number in self.unsteady)
        return MeasuredLaunch(
            plan=launch,
            outcome=outcome(),
            record=self._record(launch.devices, plan.target.script, code),
            steps=table.array(),
        )

    def _table(
        self, plan: SweepPlan, text: str, devices: int, speed: float, *, unsteady: bool
    ) -> StepTable:
        ms = {name: int(value) for name, value in re.findall(r"(\w+)_MS = (\d+)", text)}
        table = StepTable(devices).warmup(5)
        if unsteady:
            for block in range(8):
                table.block("train", [0.2 - 0.004 * (5 * block + step) for step in range(5)])
            return table
        for cycle in range(5):
            for rung in ("train", "cached", "unsynced"):
                if rung in plan.rungs:
                    step_s = speed * ms["CACHED" if rung == "unsynced" else rung.upper()] / 1000
                    table.block(rung, [step_s] * 8, cycle=cycle)
            if "solo" in plan.rungs and self.solo:
                table.solo([speed * ms["SOLO"] / 1000] * devices, cycle=cycle)
        return table

    def _record(self, devices: int, script: Path, code: CodeRoot | None) -> LaunchRecord:
        record = launch_record(devices)
        loop: LoopInfo = replace(record.loop, backend=self.backend, nccl=self.nccl)
        digest = hashlib.sha256(script.read_bytes()).hexdigest()
        module = ModuleFile(path=str(script.name), sha256=digest, foreign=self.foreign)
        return replace(
            record,
            loop=loop,
            modules=(module,) if code is not None else (),
            unavailable={} if self.solo else {"solo": "ranks talk to each other"},
        )


def _failed(launch: LaunchPlan, *, fault: bool) -> MeasuredLaunch:
    error = LaunchError(
        kind="exception", rank=1, message="rank 1: ValueError: bad batch",
        last_lines=("line 1", "line 2"), log=None, script_fault=fault,
    )  # fmt: skip
    return MeasuredLaunch(plan=launch, outcome=outcome("failed", error), record=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What ``--json`` printed."""
        document: dict[str, Any] = json.loads(self.out)
        return document


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True)
    return done.stdout.decode().strip()


class Gate:
    """``sfbench gate train.py`` with words behind it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str, command: tuple[str, ...] = ("gate", "train.py")) -> Ended:
        with pytest.raises(SystemExit) as end:
            app.main([*command, *words])
        printed = self._capsys.readouterr()
        code = end.value.code
        return Ended(code=code if isinstance(code, int) else 0, out=printed.out, err=printed.err)


TWO = ("--devices", "2", "--device", "cpu")
BASE = ("--base", "main", *TWO)
