"""``-m package.module`` runs what ``python -m`` runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import SCRIPTS

SFBENCH = Path(sys.executable).with_name("sfbench")


def test_a_package_is_measured_as_python_runs_it(tmp_path: Path) -> None:
    words = ["check", "-m", "packaged", "--json", "--", "--epochs", "500"]

    done = subprocess.run(
        [SFBENCH, *words], cwd=SCRIPTS, capture_output=True, text=True, check=False, timeout=120
    )

    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    found = {check["id"]: check["status"] for check in document["checks"]}
    assert document["target"] == "-m packaged"
    assert (found["data-sharding"], found["epoch-shuffle"]) == ("pass", "pass")


def test_either_a_target_or_a_module_is_given() -> None:
    for words, said in (
        (["check"], "Missing argument 'TARGET'"),
        (["check", "train.py", "-m", "packaged"], "either TARGET or -m"),
        (["sweep", "-m", "packaged.none"], "-m packaged.none: there is no such module"),
    ):
        done = subprocess.run(
            [SFBENCH, *words], cwd=SCRIPTS, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 2
        assert said in done.stderr


def test_a_package_is_swept(tmp_path: Path) -> None:
    words = ["sweep", "-m", "packaged", "--devices", "1,2", "--seconds", "2", "--no-report"]
    words += ["--output", str(tmp_path), "--name", "m", "--json", "--", "--epochs", "500"]

    done = subprocess.run(
        [SFBENCH, *words], cwd=SCRIPTS, capture_output=True, text=True, check=False, timeout=120
    )

    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)["points"]
    assert [(point["devices"], point["status"]) for point in points] == [(1, "ok"), (2, "ok")]


@pytest.mark.slow
def test_a_package_is_gated(tmp_path: Path) -> None:
    shutil.copytree(SCRIPTS / "packaged", tmp_path / "packaged")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    with (tmp_path / "packaged" / "__main__.py").open("a") as file:
        file.write("# changed\n")
    words = ["gate", "-m", "packaged", "--base", "HEAD", "--devices", "2", "--budget", "20"]

    done = subprocess.run(
        [SFBENCH, *words, "--", "--epochs", "500"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip

    assert done.returncode in {0, 1, 3}, done.stderr
    assert "packaged" in done.stdout
