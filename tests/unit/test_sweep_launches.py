"""A hook of the tool fails: the launch is made again without the rungs, and so are the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import sfbench
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.errors import UsageError
from sfbench.common.schema import LADDER
from sfbench.launch.outcome import LaunchError, LaunchOutcome
from sfbench.plan.machine import Machine
from sfbench.plan.options import Settings
from sfbench.plan.planner import make_plan
from sfbench.plan.sweep_plan import LaunchPlan, SweepPlan, Target
from sfbench.run import sweep
from sfbench.run.observer import SilentObserver

MACHINE = Machine(cores=(0, 1), quota=None, gpus=())


def outcome(error: LaunchError | None) -> LaunchOutcome:
    return LaunchOutcome(
        status="ok" if error is None else "failed",
        record=None, error=error, notes=(), start_s=0.0, wall_s=1.0,
    )  # fmt: skip


def failure(kind: str, *, script_fault: bool) -> LaunchError:
    return LaunchError(
        kind=kind, rank=0, message="A hook of sfbench failed.", last_lines=(),
        log="round1-devices1/rank0.log", script_fault=script_fault,
    )  # fmt: skip


def launched(
    monkeypatch: pytest.MonkeyPatch,
    error: LaunchError | None,
    *,
    until_s: float = math.inf,
    **options: Any,
) -> tuple[Any, list[tuple[int, int]]]:
    """Run all launches, those with rungs fail: what came of it, and (devices, rungs) of each."""
    made: list[tuple[int, int]] = []

    def run(plan: SweepPlan, launch: LaunchPlan, *_: object) -> MeasuredLaunch:
        made.append((launch.devices, len(plan.rungs)))
        end = outcome(error if len(plan.rungs) > 1 or (error and error.script_fault) else None)
        return MeasuredLaunch(plan=launch, outcome=end, record=None)

    def running(*_: object) -> AbstractContextManager[None]:
        return nullcontext()

    monkeypatch.setattr(sweep, "run_launch", run)
    monkeypatch.setattr(sweep, "running", running)
    target = Target(name="train", script=Path("/x/train.py"), is_workload=False)
    settings = Settings(**{"devices": "1,2", "rounds": 2, **options})
    plan = make_plan(settings, target, MACHINE, datetime(2026, 3, 1))
    return sweep._launch_all(plan, MACHINE, Path("/x"), SilentObserver(), until_s), made


def test_it_is_made_again_without_the_rungs_and_so_is_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, made = launched(monkeypatch, failure("tool", script_fault=False))

    assert made == [(1, len(LADDER)), (1, 1), (2, 1), (2, 1), (1, 1)]
    assert [one.outcome.status for one in run.launches] == ["ok"] * 4
    (told,) = run.warnings
    assert told.startswith("A hook of sfbench failed. (log: round1-devices1/rank0.log)")


def test_what_the_script_raises_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    run, made = launched(monkeypatch, failure("exception", script_fault=True))

    assert made == [(1, len(LADDER)), (2, len(LADDER))]
    assert run.warnings == ()


def test_where_no_rung_was_asked_for_there_is_nothing_to_leave_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, made = launched(monkeypatch, failure("exception", script_fault=True), rungs="train")

    assert made == [(1, 1), (2, 1)]
    assert run.warnings == ()


def test_when_its_time_is_over_a_sweep_goes_on_until_each_count_has_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, made = launched(monkeypatch, None, rounds=5, until_s=0.0)

    assert [devices for devices, _ in made] == [1, 2, 2, 1]
    assert len(run.launches) == 4


def test_an_interrupt_reaches_what_tells_the_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a first launch that ends, and Ctrl-C in the second
    heard: list[str] = []

    @contextmanager
    def running(*_: object) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            heard.append(type(error).__name__)
            raise

    def run(plan: SweepPlan, launch: LaunchPlan, *_: object) -> MeasuredLaunch:
        if launch.devices == 2:
            raise KeyboardInterrupt
        return MeasuredLaunch(plan=launch, outcome=outcome(None), record=None)

    monkeypatch.setattr(sweep, "run_launch", run)
    monkeypatch.setattr(sweep, "running", running)
    target = Target(name="train", script=Path("/x/train.py"), is_workload=False)
    plan = make_plan(Settings(devices="1,2"), target, MACHINE, datetime(2026, 3, 1))
    done = sweep._launch_all(plan, MACHINE, Path("/x"), SilentObserver())
    # THEN it is told why the sweep ends, and what was measured is kept
    assert heard == ["KeyboardInterrupt"]
    assert done.interrupted
    assert [one.plan.devices for one in done.launches] == [1]


def test_the_function_runs_on_the_first_node_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("pass")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="this is node 1: start the command `sfbench sweep`"):
        sfbench.sweep(
            "train.py", devices=[1, 2], nnodes=2, node_rank=1, rdzv_endpoint="127.0.0.1:29511"
        )
