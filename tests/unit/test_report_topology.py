"""What a sweep over several nodes says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sfbench.collect.result import load_result
from sfbench.common.schema import Diagnosis, Interval, Point, RankResult, SweepResult
from sfbench.report.sentences import verdict
from sfbench.report.topology import slow_node, topology_lines

GOLDEN = load_result(Path(__file__).parents[1] / "golden" / "sweep-schema1.json")
ONE, TWO, FOUR, EIGHT, _ = GOLDEN.points


def rank(number: int, node: int, solo_step_s: float | None = 0.04) -> RankResult:
    return RankResult(
        rank=number, local_rank=number % 4, host=f"gpu-{node}", device="cpu", samples_per_s=1.0,
        solo_step_s=solo_step_s, data_wait_s=0.0, node=node,
    )  # fmt: skip


def on_nodes(point: Point, efficiency: float, steps: dict[int, list[float | None]]) -> Point:
    pairs = [(node, step) for node, of_node in steps.items() for step in of_node]
    return replace(
        point,
        efficiency=Interval(value=efficiency, low=efficiency - 0.01, high=efficiency + 0.01),
        ranks=tuple(rank(number, *pair) for number, pair in enumerate(pairs)),
    )


def result(*points: Point, diagnoses: tuple[Diagnosis, ...] = ()) -> SweepResult:
    return replace(GOLDEN, points=points, diagnoses=diagnoses)


WITHIN = on_nodes(FOUR, 0.98, {0: [0.04] * 4})
ACROSS = on_nodes(EIGHT, 0.71, {0: [0.04] * 4, 1: [0.04] * 4})


def test_efficiency_is_told_within_a_node_and_across() -> None:
    link = Diagnosis(
        id="interconnect", devices=8, severity="bottleneck", rank=None,
        regain=Interval(value=0.2, low=0.19, high=0.21), evidence={"bus_bytes_per_s": 112_500_000},
        advice=(),
    )  # fmt: skip

    found = result(ONE, WITHIN, ACROSS, diagnoses=(link,))

    assert list(topology_lines(found)) == [
        "Nodes: 98% ±1 efficiency at 4 devices on one node; 71% ±1 efficiency at 8 devices over 2 "
        "nodes (all-reduces alone carry 0.9 Gbit/s)."
    ]
    assert set(topology_lines(found)) < set(verdict(found))


def test_a_sweep_on_one_node_says_nothing_of_nodes() -> None:
    assert list(topology_lines(result(ONE, WITHIN))) == []
    assert list(topology_lines(GOLDEN)) == []


def test_a_slow_node_is_named_with_its_host() -> None:
    slow = on_nodes(EIGHT, 0.8, {0: [0.04, 0.041], 1: [0.05, 0.052]})

    assert slow_node(slow) == (
        "Node 1 (gpu-1) is slow: alone, each of its ranks takes at least 22% longer than any on "
        "the other nodes. Look at that machine."
    )


def test_one_slow_rank_is_no_slow_node() -> None:
    assert slow_node(on_nodes(EIGHT, 0.8, {0: [0.04, 0.04], 1: [0.04, 0.06]})) is None
    assert slow_node(on_nodes(EIGHT, 0.8, {0: [0.04, 0.04], 1: [0.06, None]})) is None
    assert slow_node(ACROSS) is None
