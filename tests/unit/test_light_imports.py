"""What answers at once imports no torch: help, and whatever reads a finished result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sfbench.collect.result import write_result
from sfbench.common.schema import Environment, Interval, Point, SweepResult

# Runs the command line as the console script does, then says what had to be imported for it.
RUN = """
import json, sys
sys.argv = ["sfbench", *{words!r}]
from sfbench.cli import main
try:
    main()
    code = 0
except SystemExit as stop:
    code = stop.code or 0
heavy = sorted({{name.split(".")[0] for name in sys.modules}} & {heavy!r})
print(json.dumps([code, heavy]), file=sys.stderr)
"""


def run(words: list[str], heavy: set[str], cwd: Path) -> tuple[int, list[str]]:
    """Exit code of ``sfbench words``, and which of the heavy packages it imported."""
    code = RUN.format(words=words, heavy=heavy)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    status, imported = json.loads(done.stderr.splitlines()[-1])
    return status, imported


@pytest.mark.parametrize("words", [[], ["sweep"], ["show"], ["report"], ["gate"]], ids=" ".join)
def test_help_imports_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    heavy = {"torch", "pandas", "scipy", "matplotlib", "pyarrow"}

    assert run([*words, "--help"], heavy, tmp_path) == (0, [])


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["show"], {"torch", "pandas", "scipy", "matplotlib", "pyarrow"}),
        (["show", "--json"], {"torch", "pandas", "scipy", "matplotlib", "pyarrow"}),
        (["report", "--output", "report.html"], {"torch"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_reading_a_result_imports_nothing_heavy(
    words: list[str], heavy: set[str], tmp_path: Path
) -> None:
    write_result(tmp_path, a_result())

    assert run([*words, str(tmp_path)], heavy, tmp_path) == (0, [])


def a_result() -> SweepResult:
    """One device, measured at 100 samples per second."""
    rate = Interval(value=100.0, low=99.0, high=101.0)
    point = Point(
        devices=1,
        status="ok",
        samples_per_s=rate,
        ideal_samples_per_s=100.0,
        efficiency=Interval(value=1.0, low=None, high=None),
        step_s=Interval(value=0.08, low=0.079, high=0.081),
        steps_measured=50,
        warmup_steps=10,
        batch_per_device=8.0,
        global_batch=8.0,
    )
    return SweepResult(
        name="one",
        target="train.py",
        device_type="cpu",
        emulated=False,
        scaling="weak",
        points=(point,),
        environment=an_environment(),
    )


def an_environment() -> Environment:
    return Environment(
        command="sfbench sweep train.py --devices 1",
        started_at="2026-01-02T03:04:05Z",
        sfbench="0.1.0",
        python="3.11.7",
        torch="2.13.0",
        platform="Linux",
        host="node0",
        cpu="a processor",
        cores=2,
        memory_bytes=8 * 2**30,
        gpus=(),
        threads_per_device=1,
        pinned=False,
        backend="gloo",
        git_commit=None,
        script_sha256="0" * 64,
    )
