"""``make gpu-check`` where there is no GPU, and how it says what it found where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sfbench.plan.accelerators import Accelerators

GPU = Path(__file__).parents[1] / "gpu"
sys.path.insert(0, str(GPU))
import check  # noqa: E402


def test_without_a_gpu_it_says_so_and_checks_nothing() -> None:
    # GIVEN a machine on which none is visible
    done = subprocess.run(
        [sys.executable, str(GPU / "check.py")],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "gpu-check: no GPU that this torch can use is visible. Nothing was checked.\n"
    )


def passes() -> check.Outcome:
    return check.Outcome(passed=True, figures="1.00 us")


def fails() -> check.Outcome:
    raise RuntimeError("out of order")


def cannot_run() -> check.Outcome:
    return check.Outcome(passed=None, figures="no permission")


@pytest.mark.parametrize(
    ("devices", "on_one", "code"), [(1, (passes, cannot_run), 0), (2, (passes, fails), 1)]
)
def test_it_prints_each_outcome_and_sums_up(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    devices: int,
    on_one: tuple[object, ...],
    code: int,
) -> None:
    found = Accelerators(names=("H200",) * devices, driver="570.1")
    monkeypatch.setattr(check, "accelerators", lambda: found)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(check, "ON_ONE", on_one)
    monkeypatch.setattr(check, "ON_TWO", (passes,))
    # WHEN / THEN
    assert check.main() == code
    out = capsys.readouterr().out
    assert f"{devices} x H200, driver 570.1" in out
    assert "pass    passes" in out
    assert ("not run cannot run" in out) == (devices == 1)
    assert ("not run 1 experiments that need two GPUs" in out) == (devices == 1)
    assert ("RuntimeError: out of order" in out) == (devices == 2)


def test_nccl_tests_output_is_read() -> None:
    text = (
        "#       size         count      type   redop    root     time   algbw   busbw\n"
        "    26214400       6553600     float     sum      -1   312.50   83.89   83.89   0\n"
    )
    assert check._perf_s(text, 26_214_400) == pytest.approx(312.5e-6)


@pytest.mark.parametrize("mode", ["plain", "validates", "copies"])
def test_the_job_trains_and_keeps_its_own_time(tmp_path: Path, mode: str) -> None:
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}
    file = tmp_path / "times"
    words = ["--mode", mode, "--width", "32", "--depth", "2", "--rows", "4", "--steps", "21"]
    subprocess.run(
        [sys.executable, str(GPU / "job.py"), *words, "--times", str(file)],
        env={**os.environ, **rank, "MASTER_PORT": "0"}, check=True, timeout=120,
    )  # fmt: skip
    times = json.loads((tmp_path / "times.0").read_text())
    assert len(times) == 20
    assert min(times) > 0
