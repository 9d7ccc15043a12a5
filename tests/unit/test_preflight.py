"""What is looked at before the first rank is started: everything wrong is told in one message."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from sfbench.cli.app import main
from sfbench.common.errors import ScriptError, UsageError
from sfbench.launch import room
from sfbench.plan.machine import Machine
from sfbench.plan.options import Settings
from sfbench.plan.planner import make_plan
from sfbench.plan.sweep_plan import SweepPlan, Target
from sfbench.run import preflight
from sfbench.run.preflight import available_bytes, check_before

NOW = datetime(2026, 3, 1, 12, 30, 5)


def plan_of(folder: Path, source: bytes, devices: str = "1,2") -> SweepPlan:
    script = folder / "train.py"
    script.write_bytes(source)
    target = Target(name="train", script=script, is_workload=False)
    machine = Machine(cores=tuple(range(64)), quota=None, gpus=())
    return make_plan(Settings(devices=devices, output=folder / "out"), target, machine, NOW)


def test_a_sound_script_passes_and_nothing_is_run_or_warned_of(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    check_before(plan_of(tmp_path, b"print(1 is 1)\nraise SystemExit(3)\n"))

    assert not recwarn.list
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (b"import os\nx = (\ny = 2\n", "train.py:2: '(' was never closed: x = ("),
        (b"x = 1\n\tif y:\n", "train.py:2: unexpected indent: if y:"),
        (b"x = '\xff'\n", "train.py:1: (unicode error) 'utf-8' codec can't decode"),
        (b"x = 1\0\n", "source code string cannot contain null bytes"),
        (b"x = " + b"-" * 300_000 + b"1\n", "train.py"),
    ],
    ids=["bracket", "indent", "bytes", "nul", "deep"],
)
def test_what_cannot_be_compiled_is_told_with_its_line(
    tmp_path: Path, source: bytes, told: str
) -> None:
    with pytest.raises(ScriptError) as raised:
        check_before(plan_of(tmp_path, source))
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_memory_has_to_hold_the_ranks_of_this_node_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(plan_of(tmp_path, b"x = 1", devices="1,40"), nnodes=4)
    monkeypatch.setattr(preflight, "available_bytes", lambda: 10 * preflight.RANK_BYTES)
    check_before(plan)
    monkeypatch.setattr(preflight, "available_bytes", lambda: 10 * preflight.RANK_BYTES - 1)

    with pytest.raises(UsageError, match="asks for 10 ranks on each node"):
        check_before(plan)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(tmp_path, b"x = (", devices="1,40")
    monkeypatch.setattr(preflight, "available_bytes", lambda: 40 * preflight.RANK_BYTES - 1)
    monkeypatch.setattr(room, "free_bytes", lambda place: 5 << 20 if "shm" not in place else 0)

    with pytest.raises(UsageError) as raised:
        check_before(plan)

    code, memory, output, temporary, shared = str(raised.value).splitlines()
    assert code.endswith("train.py:1: '(' was never closed: x = (")
    assert memory.startswith("--devices asks for 40 ranks, each of 64.0 MiB at least")
    assert output == f"{tmp_path} has 5.00 MiB of room, and 16.0 MiB are needed: make room."
    assert temporary.startswith("/")
    assert shared == "/dev/shm has 0 B of room, and 1.00 MiB are needed: make room."


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(tmp_path, b"")
    monkeypatch.setattr(preflight.os, "access", lambda *_: False)  # root may read everything
    with pytest.raises(UsageError, match="the script's folder cannot be read"):
        check_before(plan)


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    for name, text in (
        ("memory.max", "104857600"),
        ("memory.current", "94371840"),
        ("memory.stat", "anon 1\ninactive_file 5242880"),
    ):
        (tmp_path / name).write_text(text)
    assert available_bytes(tmp_path) == 15 << 20

    (tmp_path / "memory.max").write_text("max")
    assert available_bytes(tmp_path) == pytest.approx(available_bytes(tmp_path / "none"), rel=0.5)


def test_the_commands_end_with_5_and_start_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("def (:\n")
    for command in (["sweep", "broken.py", "--devices", "1,2,4"], ["check", "broken.py"]):
        with pytest.raises(SystemExit) as ended:
            main(command)
        error = capsys.readouterr().err
        assert ended.value.code == 5
        assert error.count("broken.py:1: invalid syntax: def (:") == 1
        assert not list(tmp_path.glob("results/*"))
