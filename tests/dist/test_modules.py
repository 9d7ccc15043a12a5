"""``-m package.module`` runs what ``python -m`` runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
