"""Two nodes with networks of their own: namespaces with a bridge between them. Needs root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[1] / "scripts" / "for_loop.py"
BRIDGE, NODES = "sfbench0", ("sfbench-a", "sfbench-b")
ENDPOINT = "10.77.0.1:29500"
ENDS_S = 200.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def link(node: str) -> str:
    """The end of a node's cable at the bridge."""
    return f"sfb{node[-1]}0"


@pytest.fixture
def network() -> Iterator[None]:
    """Two hosts whose names do not resolve, on one bridge."""
    with ExitStack() as stack:
        ip("link", "add", BRIDGE, "type", "bridge")
        stack.callback(ip, "link", "del", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for number, name in enumerate(NODES, 1):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            ip("link", "add", link(name), "type", "veth", "peer", "name", "eth0", "netns", name)
            # At once: with its namespace alone it would go some time later.
            stack.callback(ip, "link", "del", link(name))
            ip("link", "set", link(name), "master", BRIDGE, "up")
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield


@contextmanager
def sweep(folder: Path, rank: int, *options: str, gloo: bool) -> Iterator[subprocess.Popen[str]]:
    """The command on one node, in a host of its own."""
    (folder / "tmp").mkdir(parents=True)
    command = [
        sys.executable, "-m", "sfbench", "sweep", str(SCRIPT), "--devices=1,2", "--rungs=train",
        "--no-report", "--nnodes=2", f"--node-rank={rank}", f"--rdzv-endpoint={ENDPOINT}", *options,
    ]  # fmt: skip
    shell = f'hostname {NODES[rank]}; exec "$@"'
    process = subprocess.Popen(
        ["ip", "netns", "exec", NODES[rank], "unshare", "-u", "sh", "-c", shell, "-", *command],
        cwd=folder,
        env={
            **os.environ,
            "TMPDIR": str(folder / "tmp"),
            **({"GLOO_SOCKET_IFNAME": "eth0"} if gloo else {}),
        },
        stdout=subprocess.PIPE,
        stderr=(folder / "err").open("w"),
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def processes(node: str) -> list[str]:
    """What runs on a node."""
    found = subprocess.run(
        ["ip", "netns", "pids", node], check=True, capture_output=True, text=True
    )
    return found.stdout.split()


@pytest.mark.usefixtures("network")
def test_hosts_whose_names_do_not_resolve_measure_together(tmp_path: Path) -> None:
    options = ("--seconds=2", "--rounds=1", "--json")
    with (
        sweep(tmp_path / "b", 1, *options, gloo=True) as second,
        sweep(tmp_path / "a", 0, *options, gloo=True) as first,
    ):
        out, _ = first.communicate(timeout=ENDS_S)
        second.communicate(timeout=ENDS_S)

    assert (first.returncode, second.returncode) == (0, 0), (tmp_path / "a" / "err").read_text()
    ranks = json.loads(out)["points"][1]["ranks"]
    assert [(r["node"], r["host"]) for r in ranks] == [(0, NODES[0]), (1, NODES[1])]


@pytest.mark.usefixtures("network")
def test_a_node_that_is_cut_off_is_named_and_all_end(tmp_path: Path) -> None:
    options = ("--seconds=20", "--rounds=4", "--timeout=90", "--json")
    with (
        sweep(tmp_path / "b", 1, *options, gloo=True) as second,
        sweep(tmp_path / "a", 0, *options, gloo=True) as first,
    ):
        until_s = time.monotonic() + ENDS_S
        while "devices 1, round 1" not in (tmp_path / "a" / "err").read_text():
            assert time.monotonic() < until_s
            time.sleep(0.2)
        time.sleep(3.0)  # the launch on both nodes has begun
        ip("link", "set", link(NODES[1]), "down")
        cut_s = time.monotonic()

        second.communicate(timeout=ENDS_S)
        second_s = time.monotonic() - cut_s
        out, _ = first.communicate(timeout=ENDS_S)

    one, two = json.loads(out)["points"]
    assert (one["status"], two["status"]) == ("ok", "failed")
    assert f"node 1 ({NODES[1]}) is lost: no sign of life" in two["error"]
    assert (first.returncode, second.returncode) == (5, 4)
    assert second_s < 40, "no time-out of 90 s"
    assert [processes(node) for node in NODES] == [[], []]
