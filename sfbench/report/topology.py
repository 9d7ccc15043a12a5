"""What a sweep over several nodes says of them: within a node, across nodes, and a slow one."""

from __future__ import annotations

from collections.abc import Iterator

from sfbench.common import units
from sfbench.common.schema import Point, RankResult, SweepResult
from sfbench.common.units import things

SLOWER = 1.1
"""A node is slow if each of its ranks takes so much longer alone than any of the others."""


def topology_lines(result: SweepResult) -> Iterator[str]:
    """Sentences; none of a sweep on one node."""
    known = [point for point in result.points if point.status == "ok" and point.ranks]
    across = [point for point in known if nodes_of(point) > 1]
    within = [p for p in known if nodes_of(p) == 1 and p.devices > 1 and p.efficiency is not None]
    if not across:
        return
    said = [f"{_at(within[-1])} on one node"] if within else []
    said += [
        f"{_at(point)} over {things(nodes_of(point), 'node')}{_carried(result, point)}"
        for point in across
        if point.efficiency is not None
    ]
    if said:
        yield f"Nodes: {'; '.join(said)}."
    slow = slow_node(across[-1])
    if slow is not None:
        yield slow


def nodes_of(point: Point) -> int:
    """Machines that the ranks of a point were on."""
    return len({rank.node for rank in point.ranks})


def _at(point: Point) -> str:
    assert point.efficiency is not None
    return f"{units.percent_interval(point.efficiency)} efficiency at {point.devices} devices"


def _carried(result: SweepResult, point: Point) -> str:
    """What all-reduces alone reach there, where that is part of a diagnosis."""
    for diagnosis in result.diagnoses:
        rate = diagnosis.evidence.get("bus_bytes_per_s")
        found = diagnosis.id == "interconnect" and diagnosis.devices == point.devices
        if found and isinstance(rate, int | float) and rate > 0:
            return f" (all-reduces alone carry {8 * rate / 1e9:.2g} Gbit/s)"
    return ""


def slow_node(point: Point) -> str | None:
    """The node that is slower by itself than all others, and by how much; None: there is none."""
    by_node: dict[int, list[RankResult]] = {}
    for rank in point.ranks:
        by_node.setdefault(rank.node, []).append(rank)
    alone = {
        node: [rank.solo_step_s for rank in ranks if rank.solo_step_s is not None]
        for node, ranks in by_node.items()
    }
    if len(alone) < 2 or any(len(alone[node]) < len(by_node[node]) for node in alone):
        return None
    slowest = max(alone, key=lambda node: min(alone[node]))
    others = max(max(steps) for node, steps in alone.items() if node != slowest)
    longer = min(alone[slowest]) / others
    if longer < SLOWER:
        return None
    return (
        f"Node {slowest} ({by_node[slowest][0].host}) is slow: alone, each of its ranks takes at "
        f"least {units.percent(longer - 1)} longer than any on the other nodes. Look at that "
        "machine."
    )
