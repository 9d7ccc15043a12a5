"""The experiments of ``make gpu-check`` on a virtual GPU, from end to end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from virtual import VirtualCuda

from sfbench.probe import clock
from sfbench.probe.device import Accelerator

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))
import check
from virtual_sweep import VirtualSweeps, two_ranks

Experiment = Callable[[], check.Outcome]


@pytest.fixture
def sweeps(cuda: VirtualCuda, monkeypatch: pytest.MonkeyPatch) -> VirtualSweeps:
    monkeypatch.setattr(check, "SWEEP_S", 6.0)
    monkeypatch.setattr(check, "_slow_gpu", lambda index: nullcontext(None))
    return VirtualSweeps(cuda, monkeypatch)


@pytest.mark.parametrize(
    "experiment",
    [
        check.stopwatch, check.captured_graphs,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (
            check.validation_inside, check.memory_nearly_full, check.pinned_curve,
            check.sync_batchnorm, check.without_set_device,
        )),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("sweeps")
def test_it_passes_where_all_is_right(experiment: Experiment) -> None:
    outcome = experiment()
    assert outcome.passed, outcome.figures


@pytest.mark.slow
@pytest.mark.parametrize("experiment", [check.stopwatch, check.validation_inside])
@pytest.mark.usefixtures("sweeps")
def test_it_fails_where_steps_are_seen_too_long(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_s = clock.elapsed_s
    monkeypatch.setattr(clock, "elapsed_s", lambda a, b: 1.05 * true_s(a, b))
    assert experiment().passed is False


@pytest.mark.usefixtures("sweeps")
def test_it_fails_where_a_captured_update_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Accelerator.__init__

    def blind(accelerator: Accelerator, *args: object) -> None:
        init(accelerator, *args)  # type: ignore[arg-type]
        accelerator.capturing = lambda: False

    monkeypatch.setattr(Accelerator, "__init__", blind)
    assert check.run(check.captured_graphs).passed is False


@pytest.mark.parametrize(("slower", "passed"), [(1.3, True), (1.0, None)])
def test_the_slowed_gpu_is_named(sweeps: VirtualSweeps, slower: float, passed: bool | None) -> None:
    sweeps.second = partial(two_ranks, slower=slower)
    outcome = check.straggler_by_power()
    assert outcome.passed is passed, outcome.figures


@pytest.mark.slow
@pytest.mark.parametrize(("theirs_us", "passed"), [(2100.0, True), (3000.0, False)])
def test_all_reduce_is_that_of_the_largest_bucket(
    sweeps: VirtualSweeps, monkeypatch: pytest.MonkeyPatch, theirs_us: float, passed: bool
) -> None:
    # GIVEN a sync that takes 20 ms of a step, and a bucket of 1 MB that takes 2.1 ms
    sweeps.second = partial(two_ranks, synced_s=0.020)
    monkeypatch.setattr(check.shutil, "which", lambda name: "/bin/all_reduce_perf")
    text = f" 1000000 250000 float sum -1 {theirs_us} 0.5 0.5 0\n"
    done = subprocess.CompletedProcess([], 0, text, "")
    perf = lambda *a, **k: done  # noqa: E731
    monkeypatch.setattr(check, "subprocess", type("", (), {"run": staticmethod(perf)}))
    outcome = check.all_reduce_like_nccl_tests()
    assert outcome.passed is passed, outcome.figures
