"""Several nodes: the command as a person types it, once for each node, in folders of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
FAST = ("--devices=1,2", "--seconds=0.6", "--rounds=1", "--rungs=train", "--no-report")
ENDS_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node's command that runs, or has ended."""

    folder: Path
    process: subprocess.Popen[str]

    def end(self) -> tuple[int, str, str]:
        """Wait for it: exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=ENDS_S)
        return self.process.returncode, out, err

    def left(self) -> list[str]:
        """What it left in its temporary folder, but for a folder that importing torch makes."""
        names = [path.name for path in (self.folder / "tmp").iterdir()]
        return [name for name in names if not name.startswith("torchinductor_")]


@contextmanager
def node(
    folder: Path, rank: int, endpoint: str, *options: str, script: Path = SCRIPTS / "for_loop.py"
) -> Iterator[Node]:
    """``sfbench sweep`` on one of two nodes."""
    (folder / "tmp").mkdir(parents=True)
    given = ("--nnodes=2", f"--node-rank={rank}", f"--rdzv-endpoint={endpoint}", *options)
    process = subprocess.Popen(
        [sys.executable, "-m", "sfbench", "sweep", str(script), *FAST, *given],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Node(folder=folder, process=process)
    finally:
        for each in (
            [*psutil.Process(process.pid).children(recursive=True)]
            if (process.poll() is None)
            else []
        ):
            each.kill()
        process.kill()
        process.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_two_nodes_measure_one_sweep_and_the_first_has_the_result(tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        second, first = (
            stack.enter_context(node(tmp_path / name, rank, endpoint, "--name=both", "--json"))
            for name, rank in (("b", 1), ("a", 0))
        )

        code, out, err = first.end()
        other_code, other_out, other_err = second.end()

    assert (code, other_code, other_out) == (0, 0, ""), err + other_err
    points = json.loads(out)["points"]
    assert [(p["devices"], p["status"]) for p in points] == [(1, "ok"), (2, "ok")]
    # Rank 1 is local rank 0 of the second node.
    assert [[r["local_rank"] for r in p["ranks"]] for p in points] == [[0], [0, 0]]
    assert (tmp_path / "a" / "results" / "both" / "sweep.json").is_file()
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["tmp"]
    assert first.left() == second.left() == []


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as server:
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        with node(tmp_path / "a", 0, endpoint) as first:
            code, _, err = first.end()

    assert code == 2
    assert f"--rdzv-endpoint {endpoint}" in err
    assert "give another port" in err


def test_a_name_that_does_not_resolve_is_named(tmp_path: Path) -> None:
    with node(tmp_path / "b", 1, "no-such-host.invalid:29500", "--timeout=1") as second:
        code, _, err = second.end()

    assert code == 2
    assert "the name no-such-host.invalid cannot be resolved" in err


@pytest.mark.slow
def test_a_node_that_differs_is_refused_on_both_with_the_field(tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    with (
        node(tmp_path / "b", 1, endpoint, "--threads-per-device=2") as second,
        node(tmp_path / "a", 0, endpoint, "--threads-per-device=1") as first,
    ):
        ends = first.end(), second.end()

    assert [end[0] for end in ends] == [2, 2]
    for _, _, err in ends:
        assert "node 1 (" in err
        assert "threads per device: 2 there, 1 here" in err


@pytest.mark.slow
def test_a_node_that_never_comes_is_a_failed_point_and_the_rest_is_measured(
    tmp_path: Path,
) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    with node(tmp_path / "a", 0, endpoint, "--timeout=5", "--json") as first:
        code, out, err = first.end()

    assert code in {4, 5}, err
    one, two = json.loads(out)["points"]
    assert (one["status"], two["status"]) == ("ok", "failed")
    assert "node 1" in two["error"]
    assert endpoint in two["error"]


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [signal.SIGKILL, signal.SIGSTOP])
def test_a_node_that_is_lost_half_way_is_named_and_the_rest_goes_on(
    tmp_path: Path, stopped: signal.Signals
) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    options = ("--rounds=4", "--seconds=20", "--timeout=90")
    with (
        node(tmp_path / "b", 1, endpoint, *options) as second,
        node(tmp_path / "a", 0, endpoint, *options, "--json") as first,
    ):
        whole = wait_for_ranks(second.process.pid)
        for process in whole:
            process.send_signal(stopped)
        lost_s = time.monotonic()

        code, out, err = first.end()
        took_s = time.monotonic() - lost_s
        for process in whole:
            if process.is_running():
                process.kill()

    one, two = json.loads(out)["points"]
    assert (one["status"], two["status"]) == ("ok", "failed"), err
    assert f"node 1 ({socket.gethostname()}) is lost" in two["error"]
    assert code == 5
    assert took_s < 80, "rounds of 5 s at 1 device, and no time-out of 90 s"


def wait_for_ranks(pid: int) -> list[psutil.Process]:
    """All processes of a node once its rank has begun to train."""
    until_s = time.monotonic() + ENDS_S
    while time.monotonic() < until_s:
        found = psutil.Process(pid).children(recursive=True)
        busy = [p for p in found if sum(p.cpu_times()[:2]) > 0.2]
        if sum("fork" in " ".join(p.cmdline()) for p in busy) >= 3:
            return [psutil.Process(pid), *found]
        time.sleep(0.1)
    raise AssertionError("no rank came to train")
