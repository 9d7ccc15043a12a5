"""``sfbench check`` as it is typed, and the checks of a sweep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sfbench.checks import CHECKS

SCRIPTS = Path(__file__).parent / "scripts"
LOOPS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Folder for what the command leaves, as the logs of a script that crashed."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def sfbench(temporary: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sfbench", *map(str, words)],
        cwd=temporary.parent,
        env={**os.environ, "TMPDIR": str(temporary), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def kept(temporary: Path) -> list[Path]:
    """What the command itself has left."""
    return list(temporary.glob("sfbench-*"))


def test_a_failed_check_is_exit_code_1_and_one_document(temporary: Path) -> None:
    # GIVEN a script that forgets set_epoch WHEN it is checked
    script = SCRIPTS / "epoch_shuffle.py"
    done = sfbench(temporary, "check", script, "--json", "--", "forgotten")
    # THEN the document names every check, and the one that failed
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert (document["schema"], document["devices"]) == (1, 2)
    assert (document["target"], document["script_args"]) == (str(script), ["forgotten"])
    assert tuple(check["id"] for check in document["checks"]) == CHECKS
    failed = [check["id"] for check in document["checks"] if check["status"] == "fail"]
    assert failed == ["epoch-shuffle"]
    assert kept(temporary) == []


def test_a_loop_that_cannot_be_ended_early_is_left_alone(temporary: Path) -> None:
    # GIVEN a script that crashes where one of its loaders ends before the other
    out = temporary.parent / "out"
    out.mkdir()
    # WHEN it is checked THEN that is no fault of the script
    done = sfbench(temporary, "check", LOOPS / "zip_loaders.py", "--", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("No check failed.\n")
    assert kept(temporary) == []


def test_a_crash_that_no_check_explains_is_exit_code_5(temporary: Path) -> None:
    # GIVEN a script that raises
    script = temporary.parent / "raises.py"
    script.write_text("import torch\nraise RuntimeError('out of luck')\n")
    # WHEN it is checked
    done = sfbench(temporary, "check", script)
    # THEN its last words are told, and where the logs are
    assert (done.returncode, done.stdout) == (5, "")
    assert "RuntimeError: out of luck" in done.stderr
    (logs,) = kept(temporary)
    assert str(logs) in done.stderr
    assert any("out of luck" in log.read_text() for log in logs.rglob("rank*.log"))


def test_a_sweep_checks_as_it_measures(temporary: Path) -> None:
    # GIVEN a script that averages gradients on every micro-step
    out = temporary.parent / "out"
    out.mkdir()
    options = ("--devices", "1,2", "--seconds", "2", "--rounds", "1", "--warmup", "20")
    # WHEN it is swept
    script = LOOPS / "accumulate_modulo.py"
    done = sfbench(
        temporary, "sweep", script, *options, "--no-report", "--json", "--", "--out", out
    )
    # THEN the result says so; what it costs is known only if noise allows (test_checks_rules)
    assert done.returncode == 0, done.stderr
    checks = {check["id"]: check for check in json.loads(done.stdout)["checks"]}
    assert tuple(checks) == CHECKS
    assert {c["id"] for c in checks.values() if c["status"] == "fail"} == {"accumulation-sync"}
    evidence = checks["accumulation-sync"]["evidence"]
    assert "4 times per update, on 4 micro-steps (accumulate_modulo.py:" in evidence
    assert "what the others cost is " in evidence or "the others cost about " in evidence
    assert checks["batch-meaning"]["status"] == "pass"
