"""Sweeps over hosts with networks of their own: namespaces with a bridge between them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from networks import ENDS_S, Host, network, sweeps

pytestmark = pytest.mark.cluster

SCRIPT = str(Path(__file__).parents[1] / "scripts" / "for_loop.py")
WIDE = str(Path(__file__).with_name("wide_model.py"))
MEGABITS = 200


@pytest.fixture
def two() -> Iterator[list[Host]]:
    """Two hosts whose names do not resolve."""
    with network(2) as hosts:
        yield hosts


@pytest.fixture
def four() -> Iterator[list[Host]]:
    """Four of them."""
    with network(4) as hosts:
        yield hosts


def places(document: dict[str, Any], point: int) -> list[tuple[int, str]]:
    return [(rank["node"], rank["host"]) for rank in document["points"][point]["ranks"]]


def test_a_throttled_link_is_named_across_nodes(two: list[Host], tmp_path: Path) -> None:
    two[1].throttle(MEGABITS)
    words = (WIDE, "--devices=1,2,4", "--seconds=12", "--rounds=1")

    with sweeps(two, tmp_path, *words) as commands:
        (code, out), (other, _) = [command.ended() for command in commands]

    assert (code, other) == (0, 0), commands[0].told
    document = json.loads(out)
    assert [p["status"] for p in document["points"]] == ["ok", "ok", "ok"]
    assert places(document, 1) == [(0, two[0].name)] * 2
    assert places(document, 2) == [(0, two[0].name)] * 2 + [(1, two[1].name)] * 2
    first = document["diagnoses"][0]
    assert (first["id"], first["devices"], first["severity"]) == ("interconnect", 4, "bottleneck")
    evidence = first["evidence"]
    assert (evidence["bound"], evidence["nodes"]) == ("bandwidth", 2)
    assert any("on 2 nodes" in line for line in first["advice"])
    assert evidence["bus_bytes_per_s"] * 8 / 1e6 == pytest.approx(MEGABITS, rel=0.15), evidence
    assert [host.processes() for host in two] == [[], []]


def test_four_hosts_measure_together(four: list[Host], tmp_path: Path) -> None:
    words = (SCRIPT, "--devices=1,2,4", "--seconds=2", "--rounds=1", "--rungs=train")

    with sweeps(four, tmp_path, *words) as commands:
        ends = [command.ended() for command in commands]

    assert [code for code, _ in ends] == [0] * 4, commands[0].told
    document = json.loads(ends[0][1])
    assert places(document, 1) == [(n, four[n].name) for n in range(2)]
    assert places(document, 2) == [(n, four[n].name) for n in range(4)]


def test_a_host_that_is_cut_off_is_named_and_all_end(two: list[Host], tmp_path: Path) -> None:
    words = (SCRIPT, "--devices=1,2", "--seconds=20", "--rounds=4", "--rungs=train", "--timeout=90")

    with sweeps(two, tmp_path, *words) as commands:
        first, second = commands
        until_s = time.monotonic() + ENDS_S
        while "devices 1, round 1" not in first.told:
            assert time.monotonic() < until_s, first.told
            time.sleep(0.2)
        time.sleep(3.0)  # the launch on both hosts has begun
        two[1].cut()
        cut_s = time.monotonic()
        second_code, _ = second.ended()
        second_s = time.monotonic() - cut_s
        code, out = first.ended()

    one, both = json.loads(out)["points"]
    assert (one["status"], both["status"]) == ("ok", "failed")
    assert f"node 1 ({two[1].name}) is lost: no sign of life" in both["error"]
    assert (code, second_code) == (5, 4)
    assert second_s < 40, "no time-out of 90 s"
    assert [host.processes() for host in two] == [[], []]


def test_another_number_of_threads_is_refused_by_field(two: list[Host], tmp_path: Path) -> None:
    words = (SCRIPT, "--devices=1,2", "--seconds=2", "--rounds=1", "--threads-per-device=1")

    with sweeps(two, tmp_path, *words, last=("--threads-per-device=2",)) as commands:
        ends = [command.ended() for command in commands]

    assert [code for code, _ in ends] == [2, 2]
    for command in commands:
        assert two[1].name in command.told
        assert "threads per device: 2 there, 1 here" in command.told
    assert [host.processes() for host in two] == [[], []]
