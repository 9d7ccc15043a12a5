"""Settings tried in real ranks: what reaches a script, and a whole tune by the command."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import SCRIPTS, SMALL, Runner

from sfbench.protocol.changes import Changes

SFBENCH = Path(sys.executable).with_name("sfbench")
SLOW = SCRIPTS / "slow_loader.py"
LIMIT_S = 600.0


def line_of(text: str) -> str:
    """Where a call stands in the script, as the probe writes it."""
    lines = SLOW.read_text().splitlines()
    return f"{SLOW.name}:{1 + next(n for n, line in enumerate(lines) if text in line)}"


def test_changes_reach_the_calls_of_the_script(run_script: Runner) -> None:
    loader, model = line_of("loader = DataLoader("), line_of("model = DDP(")
    changes = Changes(
        loader=(("num_workers", 1),),
        loader_lines=(loader,),
        model=(("gradient_as_bucket_view", True),),
    )

    run = run_script(SLOW.name, options=replace(SMALL, changes=changes))

    assert run.record is not None, run.story
    seen = run.record.evidence[0]
    assert run.record.loop.loader_workers == 1
    assert run.record.loop.gradient_as_bucket_view is True
    assert [one.line for one in seen.loaders] == [loader]
    assert [one.wrapped for one in seen.models] == [model]


def tune(folder: Path, *words: str) -> dict[str, Any]:
    before = psutil.Process().children()
    command = [str(SFBENCH), "tune", str(SLOW), "--devices", "2", "--json", *words]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    assert psutil.Process().children() == before
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.slow
def test_workers_are_found_for_a_loader_that_is_too_slow(tmp_path: Path) -> None:
    found = tune(tmp_path, "--budget", "3m")

    assert found["verdict"] == "gain"
    assert "num_workers=2" in found["best"]["settings"]
    # 20 ms of loading and 12 ms of step become the longer of 12 and 10.
    assert 0.8 <= found["best"]["gain"]["value"] <= 1.67
    assert found["best"]["lines"][0]["line"] == line_of("loader = DataLoader(")
    assert found["best"]["lines"][0]["options"] == "--workers 2"


@pytest.mark.slow
def test_a_trial_that_crashes_is_a_row(tmp_path: Path) -> None:
    found = tune(tmp_path, "--budget", "5m", "--", "--no-workers", "crash")

    failed = [row for row in found["trials"] if row["status"] == "failed"]
    assert found["verdict"] == "nothing-helps"
    assert failed
    assert all("a worker of mine" in row["why"] for row in failed)


@pytest.mark.slow
def test_a_trial_that_hangs_is_a_row(tmp_path: Path) -> None:
    found = tune(tmp_path, "--budget", "8m", "--", "--no-workers", "hang")

    assert [row["status"] for row in found["trials"] if row["rounds"] == 0][:1] == ["failed"]
    assert found["verdict"] == "nothing-helps"


@pytest.mark.slow
def test_nothing_is_tried_on_a_healthy_job(tmp_path: Path) -> None:
    found = tune(tmp_path, "--budget", "2m", "--", "--sample-ms", "0.1", "--workers", "1")

    assert found["verdict"] == "nothing-helps"
    assert found["best"] is None
