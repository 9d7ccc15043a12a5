"""Several ranks write one path."""

from __future__ import annotations

from sfbench.checks.facts import LaunchFacts, at, result, same_host, short
from sfbench.common.schema import CheckResult
from sfbench.protocol.evidence import RankEvidence, Written

ID = "checkpoint-writers"


def check(launch: LaunchFacts) -> CheckResult:
    """Fail if two ranks of a host open one path for writing with no sync point between."""
    for a, b in same_host(launch):
        for mine, theirs in both_write(a, b):
            if not (mine.setup and is_read(mine.path, launch)):
                return result(ID, "fail", _text(a, b, mine, theirs))
    if not any(rank.written for rank in launch.ranks):
        return result(ID, "not-applicable", "Nothing was written.")
    return result(ID, "pass", "Each path is written by one rank.")


def both_write(a: RankEvidence, b: RankEvidence) -> list[tuple[Written, Written]]:
    """What two ranks write at the same time.

    An empty file is a lock or a mark, and between two sync points only one can be.
    """
    there = {(written.path, written.sync_point): written for written in b.written}
    return [
        (mine, theirs)
        for mine in a.written
        if mine.saved or mine.size_bytes != 0
        if (theirs := there.get((mine.path, mine.sync_point))) is not None
    ]


def is_read(path: str, launch: LaunchFacts) -> bool:
    """Whether some rank reads a path while it sets up: then it is data."""
    return any(read.path == path and read.found for rank in launch.ranks for read in rank.reads)


def _text(a: RankEvidence, b: RankEvidence, mine: Written, theirs: Written) -> str:
    lines = at(mine.line if mine.line == theirs.line else f"{mine.line} and {theirs.line}")
    return (
        f"Ranks {a.rank} and {b.rank} both write {short(mine.path)}{lines}: write on rank 0 only, "
        "or put the rank into the name."
    )
