"""``make gpu-check`` where there is no GPU, and how it says what it found where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from virtual import VirtualCuda

from sfbench.plan.accelerators import Accelerators
from sfbench.probe.clock import DeviceClock

GPU = Path(__file__).parents[1] / "gpu"
sys.path.insert(0, str(GPU))
import check  # noqa: E402
import job  # noqa: E402


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
def test_the_job_trains_and_keeps_its_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    # GIVEN the only rank of a job, here in this process
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}
    for name, value in {**rank, "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "times"
    words = ["--mode", mode, "--width", "32", "--depth", "2", "--rows", "4", "--steps", "21"]
    monkeypatch.setattr(sys, "argv", ["job.py", *words, "--times", str(file)])
    monkeypatch.setattr(job, "WIDE", 512)
    at_exit: list[Any] = []
    monkeypatch.setattr(job.atexit, "register", lambda *call: at_exit.append(call))
    # WHEN it runs, and the process would end
    job.main()
    for call, *given in at_exit:
        call(*given)
    # THEN
    times = json.loads((tmp_path / "times.0").read_text())
    assert len(times) == 20
    assert min(times) > 0


class Matrix:
    """In a square tensor's place: a product takes a virtual GPU 0.2 ms, and the host 10 us."""

    def __init__(self, cuda: VirtualCuda) -> None:
        self._cuda = cuda

    def __matmul__(self, other: Matrix) -> None:
        self._cuda.host(1e-5)
        self._cuda.launch(2e-4, 0)


@pytest.fixture
def gpu(cuda: VirtualCuda, monkeypatch: pytest.MonkeyPatch) -> VirtualCuda:
    """The experiments that need no sweep, on a virtual GPU."""
    home = torch.device("cuda", 0)
    monkeypatch.setattr("sfbench.probe.clock.home_of", lambda parameters, kind: home)
    clock = DeviceClock("cuda")
    clock.follow([])
    monkeypatch.setattr(check, "_clock", lambda: clock)
    monkeypatch.setattr(check, "_square", lambda size: Matrix(cuda))
    monkeypatch.setattr(check.time, "sleep", cuda.host)
    return cuda


@pytest.mark.parametrize(("cost_s", "passed"), [(3e-6, True), (30e-6, False)])
def test_the_cost_of_a_mark_is_judged(gpu: VirtualCuda, cost_s: float, passed: bool) -> None:
    gpu.event_cost_s = cost_s
    outcome = check.mark_cost()
    assert outcome.passed == passed
    assert f"{cost_s * 1e6:.1f}" in outcome.figures or f"{cost_s * 1e6:.0f}" in outcome.figures


def test_marks_that_drift_are_told(gpu: VirtualCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check.drift_of_marks().passed
    # AND a clock that counts from its first mark in float32, with steps that differ by nothing
    resolve = DeviceClock.resolve

    def rounded(clock: DeviceClock, marks: Any) -> list[float]:
        return [round(s / 4e-4) * 4e-4 for s in resolve(clock, marks)]

    monkeypatch.setattr(DeviceClock, "resolve", rounded)
    assert check.drift_of_marks().passed is False


class Swept:
    """What a sweep would have brought."""

    def __init__(self, step_s: float = 0.1, **facts: Any) -> None:
        share = SimpleNamespace(value=facts.get("share"), reason=facts.get("reason"))
        shares = SimpleNamespace(compute=share, communication=share)
        ranks = [
            SimpleNamespace(rank=r, device=f"cuda:{r}", solo_step_s=s)
            for r, s in enumerate(facts.get("solo", (0.1, 0.1)))
        ]
        self._point = SimpleNamespace(
            step_s=SimpleNamespace(value=step_s), time_share=shares, ranks=ranks,
            slow_rank=facts.get("slow_rank"),
        )  # fmt: skip
        self.steps = pd.DataFrame({"devices": [1]})
        self.result = SimpleNamespace(diagnoses=facts.get("diagnoses", ()))

    def at(self, devices: int) -> Any:
        return self._point


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The next sweeps' results; the script's own laps take 0.1 s."""

    def bring(*results: Swept) -> None:
        coming = iter(results)

        def swept(folder: Path, words: list[str], **options: Any) -> Swept:
            if "--times" in words:
                Path(words[words.index("--times") + 1]).with_name("times.0").write_text(
                    json.dumps([0.1] * 40)
                )
            return next(coming)

        monkeypatch.setattr(check, "_sweep", swept)

    return bring


@pytest.mark.parametrize(("step_s", "passed"), [(0.1005, True), (0.104, False)])
def test_the_stopwatch_is_within_one_percent(sweeps: Any, step_s: float, passed: bool) -> None:
    sweeps(Swept(step_s), Swept(step_s))
    assert check.stopwatch().passed == passed
    assert check.validation_inside().passed == passed


@pytest.mark.parametrize(
    ("swept", "passed"),
    [
        (Swept(share=0.9), True),
        (Swept(reason="no memory: 3 GiB for a copy"), True),
        (Swept(reason="gave no measured step"), False),
    ],
)
def test_memory_nearly_full_is_measured_or_told(sweeps: Any, swept: Swept, passed: bool) -> None:
    sweeps(swept)
    assert check.memory_nearly_full().passed == passed


@pytest.mark.parametrize(("share", "passed"), [(0.1, True), (None, False)])
def test_sync_batchnorm_needs_a_known_share(sweeps: Any, share: Any, passed: bool) -> None:
    sweeps(Swept(share=share))
    assert check.sync_batchnorm().passed == passed


@pytest.mark.parametrize(("step_s", "passed"), [(0.101, True), (0.077, False)])
def test_a_job_without_set_device_takes_as_long(sweeps: Any, step_s: float, passed: bool) -> None:
    sweeps(Swept(0.1), Swept(step_s))
    assert check.without_set_device().passed == passed


@pytest.mark.parametrize(
    ("found", "solo", "passed"),
    [(1, (0.1, 0.13), True), (None, (0.1, 0.13), False), (None, (0.1, 0.101), None)],
)
def test_a_straggler_by_power_is_found_where_the_limit_slows(
    sweeps: Any, monkeypatch: pytest.MonkeyPatch, found: Any, solo: Any, passed: Any
) -> None:
    monkeypatch.setattr(check, "_slow_gpu", lambda index: nullcontext(None))
    one = SimpleNamespace(id="straggler", devices=2, rank=found)
    sweeps(Swept(slow_rank=found, solo=solo, diagnoses=(one,) if found else ()))
    assert check.straggler_by_power().passed is passed
    monkeypatch.setattr(check, "_slow_gpu", lambda index: nullcontext("no permission"))
    assert check.straggler_by_power().passed is None


@pytest.mark.parametrize(("theirs_us", "passed"), [(320.0, True), (500.0, False)])
def test_all_reduce_is_compared_with_nccl_tests(
    sweeps: Any, monkeypatch: pytest.MonkeyPatch, theirs_us: float, passed: bool
) -> None:
    monkeypatch.setattr(check.shutil, "which", lambda name: "/bin/all_reduce_perf")
    text = f" 26214400 6553600 float sum -1 {theirs_us} 83.89 83.89 0\n"
    done = subprocess.CompletedProcess([], 0, text, "")
    monkeypatch.setattr(check.subprocess, "run", lambda *a, **k: done)
    evidence = {"largest_bucket_bytes": 26_214_400, "all_reduce_of_largest_bucket_s": 312.5e-6}
    sweeps(Swept(diagnoses=(SimpleNamespace(id="interconnect", evidence=evidence),)))
    assert check.all_reduce_like_nccl_tests().passed == passed


@pytest.mark.parametrize(("misfit", "passed"), [(0.02, True), (0.3, False), (None, False)])
def test_a_curve_that_is_no_line_is_told(
    sweeps: Any, monkeypatch: pytest.MonkeyPatch, misfit: Any, passed: bool
) -> None:
    curve = SimpleNamespace(
        misfit=misfit, fixed_s=SimpleNamespace(value=0.01), sizes=(128.0, 256.0, 512.0)
    )
    monkeypatch.setattr(check, "batch_curve", lambda steps: curve if misfit is not None else None)
    sweeps(Swept())
    assert check.pinned_curve().passed == passed


def test_the_experiments_fit_into_ten_minutes() -> None:
    longest_s = 120.0
    assert check.LIMIT_S + longest_s <= 600.0


@pytest.mark.slow
def test_a_real_sweep_of_the_job_agrees_with_its_stopwatch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN the processor in a GPU's place
    small = ["--width", "256", "--depth", "4", "--rows", "256"]

    swept = check._sweep

    def on_cpu(folder: Path, words: list[str], **options: Any) -> Any:
        return swept(folder, [*words, *small], **options)

    monkeypatch.setattr(check, "_sweep", on_cpu)
    monkeypatch.setattr(check, "DEVICE", "cpu")
    monkeypatch.setattr(check, "SWEEP_S", 4.0)
    monkeypatch.setattr(check, "SAME", 0.15)
    outcome = check.run(check.stopwatch)
    assert ":" in outcome.figures
    assert "Error" not in outcome.figures
