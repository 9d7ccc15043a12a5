"""Starting all ranks, the second launch on: at most a quarter of what the torchrun command takes.

Both start the same file in turn, in one run: it imports torch and torch.distributed, and ends.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from sfbench.common.schema import RankJob
from sfbench.launch.local import LocalLauncher
from sfbench.plan.sweep_plan import NodeJob

BUDGET = 0.25
PAIRS = 3

SCRIPT = """\
import os
from pathlib import Path

import torch
import torch.distributed


def main(job=None):
    if job is not None and os.environ["RANK"] == "0":
        Path(job.launch_dir, "record.npz").touch()


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("startup")
    (folder / "trivial.py").write_text(SCRIPT)
    return folder


@pytest.fixture(scope="module")
def launcher(folder: Path) -> Iterator[LocalLauncher]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        with LocalLauncher(threads=1, device_type="cpu", entry="trivial:main") as launcher:
            by_launcher(launcher, folder / "first", 1)
            yield launcher


def by_launcher(launcher: LocalLauncher, folder: Path, devices: int) -> float:
    """Wall time in s of one launch."""
    folder.mkdir()
    job = RankJob(script="trivial.py", launch_dir=str(folder))
    node_job = NodeJob(job=job, nproc=devices, log_dir=folder / "logs", timeout_s=300.0)
    outcome = launcher.run(node_job, lambda progress: None)
    assert outcome.status == "ok", outcome
    return outcome.wall_s


def by_torchrun(folder: Path, devices: int) -> float:
    """Wall time in s of the command."""
    command = Path(sys.executable).with_name("torchrun")
    argv = [command, "--standalone", f"--nproc-per-node={devices}", folder / "trivial.py"]
    start_s = time.monotonic()
    subprocess.run(argv, check=True, capture_output=True)
    return time.monotonic() - start_s


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_start_takes_at_most_a_quarter_of_torchrun(
    benchmark: BenchmarkFixture, launcher: LocalLauncher, folder: Path, devices: int
) -> None:
    torchrun_s: list[float] = []

    def setup() -> tuple[tuple[LocalLauncher, Path, int], dict[str, object]]:
        torchrun_s.append(by_torchrun(folder, devices))
        return (launcher, folder / f"{devices}-{len(torchrun_s)}", devices), {}

    benchmark.pedantic(by_launcher, setup=setup, rounds=PAIRS)

    ours_s = statistics.median(benchmark.stats.stats.data)
    theirs_s = statistics.median(torchrun_s)
    benchmark.extra_info["torchrun_s"] = theirs_s
    benchmark.extra_info["ratio"] = ours_s / theirs_s
    assert ours_s <= BUDGET * theirs_s
