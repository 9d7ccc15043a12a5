"""A script that trains one model after another, through the command that a person gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "one_after_another.py"


@pytest.mark.parametrize(
    ("leaves", "told"),
    [
        ("keeps", "trains one model after another: measured is the first, of 4,160 parameters"),
        ("leaves", "opens another one: measured is what it trained before"),
    ],
)
def test_the_first_of_two_trainings_is_measured_and_named(
    tmp_path: Path, leaves: str, told: str
) -> None:
    # GIVEN a model of 4,160 parameters, trained for about 1.6 s, and then one of 16,640
    # WHEN it is swept for longer than the first takes
    options = ["--devices", "2", "--seconds", "6", "--rounds", "1", "--no-report", "--json"]
    command = [sys.executable, "-m", "sfbench", "sweep", str(SCRIPT), *options, "--", leaves]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    # THEN its figures are of the first alone, which is said, and its weights are found alike
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (point,) = found["points"]
    assert point["batch_per_device"] == pytest.approx(8)
    said = point["warnings"]
    assert sum(told in w for w in said) == 1, said
    assert not any("ended by itself" in w or "weights differ" in w for w in said), said
    copies = next(c for c in found["checks"] if c["id"] == "independent-copies")
    assert copies["status"] == "pass", copies
