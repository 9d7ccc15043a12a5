"""Fixtures of the gate's commands: a repository, made-up launches, the command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gate_commands import SCRIPT, TWO, Gate, Launches, NoLauncher, git

from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.gating import side_launches, slots
from sfbench.gating.gate_report import ArmName, SlotValue
from sfbench.gating.statistics import calibration
from sfbench.run import nodes, sweep

_SLOTS: dict[tuple[str, bytes], SlotValue] = {}


def _slot_value(arm: ArmName, pair: int, measured: MeasuredLaunch) -> SlotValue:
    """Of launches that are alike in all they measured, the first is worked out."""
    assert measured.steps is not None
    like = (repr((measured.plan.devices, measured.record)), measured.steps.tobytes())
    if like not in _SLOTS:
        _SLOTS[like] = slots.slot_value(arm, pair, measured)
    return replace(_SLOTS[like], arm=arm, pair=pair)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    made_up = Launches()
    for module in (side_launches, sweep):
        monkeypatch.setattr(module, "run_launch", made_up.run)
    for module in (side_launches, nodes):
        monkeypatch.setattr(module, "LocalLauncher", NoLauncher)
    monkeypatch.setattr(side_launches, "slot_value", _slot_value)
    return made_up


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launches: Launches) -> Iterator[Path]:
    """A script in one commit, and the person in its folder. Afterwards no worktree is left."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SFBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.email", "test@localhost")
    git(root, "config", "user.name", "test")
    (root / "train.py").write_text(SCRIPT)
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    monkeypatch.chdir(root)
    yield root
    assert git(root, "worktree", "list").count("\n") == 0


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is done with a calibration: how good its figures are plays no part."""
    monkeypatch.setattr(calibration, "DRAWS", 200)
    monkeypatch.setattr(calibration, "SEARCH_DRAWS", 50)


@pytest.fixture
def gate(capsys: pytest.CaptureFixture[str]) -> Gate:
    return Gate(capsys)


@pytest.fixture
def recorded(repo: Path, gate: Gate) -> Path:
    """A result that was recorded of the script as it is."""
    ended = gate(*TWO, "--name", "base", command=("gate", "record", "train.py"))
    assert ended.code == 0, ended.err
    assert "Result: results/base" in ended.err
    return repo / "results" / "base"
