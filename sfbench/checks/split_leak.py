"""Ranks split a dataset differently: what one validates on, another trains on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import inf

from sfbench.checks.facts import LaunchFacts, at, result
from sfbench.common.schema import CheckResult
from sfbench.common.units import things
from sfbench.protocol.evidence import RankEvidence, Split

ID = "split-leak"
LEAST = 0.01
"""Part of the smaller set that has to be in another rank's larger one."""


def check(launch: LaunchFacts) -> CheckResult:
    """Fail if parts that are disjoint on each rank overlap between ranks."""
    compared = False
    for a, b in launch.peers():
        for mine, theirs in _pairs(a, b):
            compared = True
            small, large = sorted(mine, key=lambda split: split.size)
            other = theirs[0] if theirs[0].size == large.size else theirs[1]
            part = overlap(small, other)
            if part > LEAST:
                return result(ID, "fail", _text(a, b, small, part))
    if not compared:
        return result(ID, "not-applicable", "No dataset was split (random_split, Subset).")
    return result(ID, "pass", "All ranks split alike.")


def _pairs(
    a: RankEvidence, b: RankEvidence
) -> Iterator[tuple[tuple[Split, Split], tuple[Split, Split]]]:
    """Two parts of one dataset on one rank, and the same two on another; disjoint on both."""
    places = list(zip(a.splits, b.splits, strict=False))
    for (a1, b1), (a2, b2) in combinations(places, 2):
        related = a1.parent == a2.parent and b1.parent == b2.parent
        alike = (a1.size, a2.size) == (b1.size, b2.size)
        if related and alike and overlap(a1, a2) == 0 and overlap(b1, b2) == 0:
            yield (a1, a2), (b1, b2)


def overlap(a: Split, b: Split) -> float:
    """Which part of ``a`` is also in ``b``, estimated from their sketches.

    Up to the place where the shorter of two sketches ends, both show all members.
    """
    visible = [place for place in a.sketch if place <= min(_reach(a), _reach(b))]
    common = set(visible) & set(b.sketch)
    return len(common) / len(visible) if visible else 0.0


def _reach(split: Split) -> float:
    complete = split.size == len(split.sketch)
    return inf if complete or not split.sketch else split.sketch[-1]


def _text(a: RankEvidence, b: RankEvidence, small: Split, part: float) -> str:
    return (
        f"About {part:.0%} of the {things(small.size, 'sample')} that rank {a.rank} holds out "
        "are trained on "
        f"by rank {b.rank}{at(small.line)}: give random_split a generator with a fixed seed."
    )
