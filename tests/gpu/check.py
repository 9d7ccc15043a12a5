"""``make gpu-check``: what only a machine with GPUs can show, in at most ten minutes.

Each experiment prints pass, fail or not run, with its figures. Exit code 0: none failed; 1: one
did; 2: there is no GPU.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfbench import sweep
from sfbench.analyze.batch_curve import batch_curve
from sfbench.common.errors import SfbenchError
from sfbench.common.units import seconds
from sfbench.plan.accelerators import accelerators
from sfbench.probe.clock import DeviceClock
from sfbench.report.notebook import Results

JOB = Path(__file__).with_name("job.py")
LIMIT_S = 450.0
"""No experiment begins after this; the longest takes about two minutes."""
DEVICE = "cuda"
SWEEP_S = 12.0
MARK_S = 10e-6
SAME = 0.01
"""Times that should be the same differ by no more than this ratio."""
LIKE_NCCL_TESTS = 0.15
MISFIT = 0.1
SLOWED = 0.03
"""A power limit that slows a rank by less than this ratio shows nothing."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one experiment. ``passed`` None: it could not be run here."""

    passed: bool | None
    figures: str

    @property
    def word(self) -> str:
        """For the line that is printed."""
        return "not run" if self.passed is None else "pass" if self.passed else "FAIL"


def mark_cost() -> Outcome:
    """A mark on the host, and in steps of some milliseconds."""
    clock, a = _clock(), _square(4096)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(10_000):
        clock.mark()
    cost_s = (time.perf_counter() - began) / 10_000
    bare, marked = [], []
    for _ in range(3):
        bare.append(_steps_s(a, lambda: None))
        marked.append(_steps_s(a, clock.mark))
    ratio = min(marked) / min(bare)
    return Outcome(
        passed=cost_s <= MARK_S and ratio <= 1 + SAME,
        figures=f"a mark costs {seconds(cost_s)}; steps with marks take {ratio:.4f} as long",
    )


def drift_of_marks() -> Outcome:
    """Equal steps stay equal a minute after the clock's first mark."""
    clock, a = _clock(), _square(2048)
    clock.mark()
    time.sleep(60.0)
    for _ in range(200):
        a @ a
    marks = []
    for _ in range(301):
        marks.append(clock.mark())
        a @ a
    found = np.diff(clock.resolve(marks))[100:]
    distinct, spread = len(np.unique(found)), float(np.std(found) / found.mean())
    return Outcome(
        passed=distinct > 10 or spread < 1e-4,
        figures=f"{seconds(float(found.mean()))} +- {100 * spread:.2f} %, {distinct} different",
    )


def stopwatch() -> Outcome:
    """Step times against the script's own events, in the same run."""
    return _against_stopwatch(["--mode", "plain"], SAME)


def validation_inside() -> Outcome:
    """The same, with a validation every ten steps that is no part of a step."""
    return _against_stopwatch(["--mode", "validates"], 2 * SAME)


def memory_nearly_full() -> Outcome:
    """A job that leaves no room for a copy of its weights is measured all the same."""
    with _folder() as folder:
        results = _sweep(
            folder, ["--mode", "fills", "--rows", "256", "--depth", "16"], devices=1, rungs="all"
        )
        shares = results.at(1).time_share
        compute = shares.compute if shares is not None else None
    if compute is None:
        return Outcome(passed=False, figures="no time shares")
    kept = compute.value is not None
    told = "rungs without sync ran" if kept else f"left out: {compute.reason}"
    return Outcome(passed=kept or "memory" in str(compute.reason), figures=told)


def pinned_curve() -> Outcome:
    """Steps made of copies to the device: half, single and double batches lie on one line."""
    with _folder() as folder:
        results = _sweep(folder, ["--mode", "copies", "--rows", "256"], devices=1, rungs="all")
        curve = batch_curve(results.steps[results.steps["devices"] == 1])
    if curve is None:
        return Outcome(passed=False, figures="no curve was measured")
    return Outcome(
        passed=curve.misfit <= MISFIT,
        figures=f"misfit {100 * curve.misfit:.1f} %, fixed {seconds(curve.fixed_s.value)}, "
        f"sizes {', '.join(f'{size:g}' for size in curve.sizes)}",
    )


def captured_graphs() -> Outcome:
    """Forward and backward out of a graph are timed; an update that goes into one is refused."""
    outcome = _against_stopwatch(["--mode", "graphs"], SAME)
    if not outcome.passed:
        return outcome
    told = "was measured"
    with _folder() as folder:
        try:
            _sweep(folder, ["--mode", "captures"], devices=1).at(1)
        except SfbenchError as error:
            told = str(error)
    refused = "captured into a graph" in told
    return Outcome(
        passed=refused,
        figures=f"replayed {outcome.figures}; a captured update "
        f"{'is refused' if refused else f'is not refused: {told}'}",
    )


def sync_batchnorm() -> Outcome:
    """SyncBatchNorm's own collectives, on rungs where ranks run apart."""
    with _folder() as folder:
        results = _sweep(folder, ["--mode", "norms", "--depth", "4"], devices=2, rungs="all")
        shares = results.at(2).time_share
    known = shares is not None and shares.communication.value is not None
    value = shares.communication.value if shares is not None and known else None
    told = "unknown" if value is None else f"{100 * value:.1f} % of the step"
    return Outcome(passed=known, figures=f"communication {told}")


def without_set_device() -> Outcome:
    """``DDP(device_ids=[local_rank])`` alone: as with set_device, each rank on its own device."""
    steps = []
    for word in ("yes", "no"):
        with _folder() as folder:
            results = _sweep(folder, ["--set-device", word], devices=2)
            steps.append(_mean_step_s(results, 2))
            ranks = results.at(2).ranks
    ratio = steps[1] / steps[0]
    return Outcome(
        passed=abs(ratio - 1) <= 3 * SAME and len({rank.device for rank in ranks}) == 2,
        figures=f"{ratio:.4f} of the step with set_device; on {[rank.device for rank in ranks]}",
    )


def straggler_by_power() -> Outcome:
    """A GPU at its lowest power limit is the straggler, and its clock is told."""
    with _slow_gpu(1) as reason:
        if reason is not None:
            return Outcome(passed=None, figures=reason)
        with _folder() as folder:
            results = _sweep(folder, ["--rows", "4096"], devices=2, rungs="all")
    point = results.at(2)
    found = [d for d in results.result.diagnoses if d.id == "straggler" and d.devices == 2]
    solo = [rank.solo_step_s or 0.0 for rank in point.ranks]
    slower = solo[1] / solo[0] - 1 if all(solo) else 0.0
    if slower < SLOWED:
        return Outcome(passed=None, figures=f"the limit slows the rank by {100 * slower:.1f} %")
    return Outcome(
        passed=point.slow_rank == 1 and any(d.rank == 1 for d in found),
        figures=f"rank {point.slow_rank} of 0, 1; alone {100 * slower:.0f} % slower",
    )


def all_reduce_like_nccl_tests() -> Outcome:
    """All-reduce of a bucket's size, beside ``all_reduce_perf`` of nccl-tests."""
    tool = shutil.which("all_reduce_perf")
    if tool is None:
        return Outcome(passed=None, figures="all_reduce_perf of nccl-tests is not in PATH")
    with _folder() as folder:
        results = _sweep(folder, [], devices=2, rungs="all")
        found = [d.evidence for d in results.result.diagnoses if d.id == "interconnect"]
    if not found:
        return Outcome(passed=None, figures="communication takes too little here to be timed")
    size = int(found[0]["largest_bucket_bytes"] or 0)
    mine = float(found[0]["all_reduce_of_largest_bucket_s"] or 0.0)
    done = subprocess.run(
        [tool, "-b", str(size), "-e", str(size), "-g", "2"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    theirs = _perf_s(done.stdout, size)
    return Outcome(
        passed=abs(mine / theirs - 1) <= LIKE_NCCL_TESTS,
        figures=f"{size} bytes: {seconds(mine)}, nccl-tests {seconds(theirs)}",
    )


ON_ONE = (
    mark_cost, drift_of_marks, stopwatch, memory_nearly_full, validation_inside, pinned_curve,
    captured_graphs,
)  # fmt: skip
ON_TWO = (
    sync_batchnorm, without_set_device, straggler_by_power, all_reduce_like_nccl_tests,
)  # fmt: skip


def _clock() -> DeviceClock:
    clock = DeviceClock("cuda")
    clock.follow([torch.zeros(1, device="cuda:0")])
    return clock


def _square(size: int) -> torch.Tensor:
    return torch.randn(size, size, device="cuda:0", dtype=torch.bfloat16)


def _steps_s(a: torch.Tensor, marked: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(300):
        for _ in range(4):
            a @ a
        marked()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / 300


def _against_stopwatch(words: list[str], tolerance: float) -> Outcome:
    with _folder() as folder:
        results = _sweep(folder, [*words, "--times", str(folder / "times")], devices=1)
        own = json.loads((folder / "times.0").read_text())
        ours = _mean_step_s(results, 1)
    # A validation stands between two laps: the median of the others is the step.
    theirs = statistics.median(own[len(own) // 4 :])
    ratio = ours / theirs
    return Outcome(
        passed=abs(ratio - 1) <= tolerance,
        figures=f"{seconds(ours)}, by the script's own events {seconds(theirs)}: {ratio:.4f}",
    )


def _sweep(folder: Path, words: list[str], *, devices: int, rungs: str = "train") -> Results:
    return sweep(
        JOB, words, devices=[devices], device=DEVICE, seconds=SWEEP_S, rounds=1, rungs=rungs,
        output=folder, name="check", timeout=120.0, allow_saves=True,
    )  # fmt: skip


def _mean_step_s(results: Results, devices: int) -> float:
    interval = results.at(devices).step_s
    assert interval is not None
    return interval.value


def _perf_s(text: str, size: int) -> float:
    """The out-of-place time of a line of nccl-tests: size count type redop root time ..."""
    line = next(x.split() for x in text.splitlines() if x.split()[:1] == [str(size)])
    return float(line[5]) / 1e6


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sfbench-gpu-") as name:
        yield Path(name)


@contextmanager
def _slow_gpu(index: int) -> Iterator[str | None]:
    """One GPU at its lowest power limit; what was set before comes back. Or why that cannot be."""
    import pynvml

    pynvml.nvmlInit()
    try:
        # NVML counts the GPUs of the machine, torch those that are visible.
        uuid = str(torch.cuda.get_device_properties(index).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(
            uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        )
        before = pynvml.nvmlDeviceGetPowerManagementLimit(handle)
        lowest, _ = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
        try:
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, lowest)
        except pynvml.NVMLError as error:
            yield f"the power limit cannot be set here: {error}"
            return
        try:
            yield None
        finally:
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, before)
    finally:
        pynvml.nvmlShutdown()


def run(experiment: Callable[[], Outcome]) -> Outcome:
    """One experiment; what it raises is a failure."""
    try:
        return experiment()
    except (SfbenchError, RuntimeError, OSError, AssertionError) as error:
        return Outcome(passed=False, figures=f"{type(error).__name__}: {error}")


def main() -> int:
    """Run what this machine can; the exit code."""
    found = accelerators()
    if not found.names or found.kind != "cuda" or not torch.cuda.is_available():
        why = found.problem or "no GPU that this torch can use is visible"
        print(f"gpu-check: {why}. Nothing was checked.", file=sys.stderr)
        return 2
    began, outcomes = time.monotonic(), []
    print(
        f"{len(found.names)} x {found.names[0]}, driver {found.driver}, torch {torch.__version__}"
    )
    for experiment in (*ON_ONE, *(ON_TWO if len(found.names) > 1 else ())):
        if time.monotonic() - began > LIMIT_S:
            outcome = Outcome(passed=None, figures="no time left")
        else:
            outcome = run(experiment)
        outcomes.append(outcome)
        print(f"{outcome.word:8}{experiment.__name__.replace('_', ' '):28}{outcome.figures}")
        sys.stdout.flush()
    if len(found.names) == 1:
        print(f"not run {len(ON_TWO)} experiments that need two GPUs")
    return 1 if any(outcome.passed is False for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
