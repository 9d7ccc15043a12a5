"""The command under srun, in allocations of a real Slurm whose nodes are all on this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
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


def from_login(folder: Path, *words: str) -> list[str]:
    """A sweep as a job, typed where jobs are submitted."""
    return [sys.executable, "-m", "sfbench", "sweep", SCRIPT, "--launcher=slurm", "--name=job",
            "--rungs=train", "--rounds=1", "--no-report", "--json", *words]  # fmt: skip


def run(environment: dict[str, str], folder: Path, *command: str) -> tuple[int, str, str]:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=ENDS_S,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_job_is_submitted_and_its_result_shown(
    environment: dict[str, str], tmp_path: Path
) -> None:
    words = ("--nodes=2", "--devices=1,2", "--seconds=2", "--time=5")

    code, out, err = run(environment, tmp_path, *from_login(tmp_path, *words))

    assert code == 0, err
    points = json.loads(out)["points"]
    assert [[rank["node"] for rank in p["ranks"]] for p in points] == [[0], [0, 1]]
    assert "RUNNING" in err
    assert (tmp_path / "results" / "job" / "sweep.json").is_file()


def test_a_job_that_fails_is_collected_with_its_reason(
    environment: dict[str, str], tmp_path: Path
) -> None:
    words = ("--devices=1", "--seconds=2", "--no-wait", "--", "--no-such-option")

    code, out, _ = run(environment, tmp_path, *from_login(tmp_path, *words))
    job = json.loads(out)["job"]
    collected, _, err = run(
        environment, tmp_path, sys.executable, "-m", "sfbench", "collect", job, "--json"
    )

    assert (code, collected) == (0, 5), err
    assert "no-such-option" in err


def test_ctrl_c_cancels_the_job_and_keeps_what_was_measured(
    environment: dict[str, str], tmp_path: Path
) -> None:
    words = ("--devices=1,2", "--nodes=2", "--seconds=60", "--rounds=12")
    with subprocess.Popen(
        from_login(tmp_path, *words), cwd=tmp_path, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as command:  # fmt: skip
        assert command.stderr is not None
        told = ""
        for line in command.stderr:
            told += line
            if "devices 2, round 1" in line:
                break
        command.send_signal(signal.SIGINT)
        out, _ = command.communicate(timeout=ENDS_S)

    assert command.returncode == 130, told
    document = json.loads(out)
    assert document["interrupted"]
    assert document["points"][0]["status"] == "ok"
    assert until_idle(environment)


def until_idle(environment: dict[str, str]) -> bool:
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        found = subprocess.run(
            ["squeue", "--noheader"], env=environment, capture_output=True, text=True, check=True
        )
        if not found.stdout.strip():
            return True
        time.sleep(0.5)
    return False
