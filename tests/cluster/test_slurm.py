"""The command under srun, in allocations of a real Slurm whose nodes are all on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_daemons import slurm

pytestmark = pytest.mark.cluster

SCRIPT = str(Path(__file__).parents[1] / "scripts" / "for_loop.py")
NODES = ["node-a", "node-b"]
ENDS_S = 240.0


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Of who asks a Slurm of two nodes."""
    with slurm(tmp_path_factory.mktemp("slurm") / "s", NODES) as found:
        yield found


def srun(
    environment: dict[str, str], folder: Path, *words: str, sweep: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    """A sweep under srun, in an allocation of its own."""
    command = ["srun", "--nodes=2", "--ntasks-per-node=1", *words, sys.executable, "-m", "sfbench",
               "sweep", SCRIPT, "--rungs=train", "--no-report", "--json", *sweep]  # fmt: skip
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=ENDS_S,
        check=False,
    )  # fmt: skip


def test_srun_in_an_allocation_is_all(environment: dict[str, str], tmp_path: Path) -> None:
    sweep = ("--devices=1,2,4", "--seconds=2", "--rounds=1")

    done = srun(environment, tmp_path, sweep=sweep)

    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)["points"]
    assert [(p["devices"], p["status"]) for p in points] == [(1, "ok"), (2, "ok"), (4, "ok")]
    assert [[rank["node"] for rank in p["ranks"]] for p in points] == [[0], [0, 0], [0, 0, 1, 1]]


def test_a_node_rank_that_the_shell_put_in_is_said(
    environment: dict[str, str], tmp_path: Path
) -> None:
    sweep = ("--devices=1,2", "--seconds=2", "--rounds=1", "--nnodes=2", "--node-rank=0")

    done = srun(environment, tmp_path, sweep=sweep)

    assert done.returncode == 0, done.stderr
    assert "Slurm calls this node 1 (SLURM_NODEID)" in done.stderr
    assert len(json.loads(done.stdout)["points"][1]["ranks"]) == 2


def test_several_tasks_on_a_node_are_refused(environment: dict[str, str], tmp_path: Path) -> None:
    done = srun(
        environment, tmp_path, "--ntasks-per-node=2", sweep=("--devices=1,2", "--seconds=2")
    )

    assert done.returncode == 2
    assert "Use srun --ntasks-per-node=1" in done.stderr
