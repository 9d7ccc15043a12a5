"""Ranks of one node make the same data at once, or read it before it is complete."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sfbench.checks.checkpoint_writers import both_write, is_read
from sfbench.checks.facts import LaunchFacts, at, result, same_host, short
from sfbench.common.schema import CheckResult
from sfbench.protocol.evidence import RankEvidence, Read, Written

ID = "download-race"
DATASET = 4
"""Files that make a folder a dataset; fewer may be a log beside checkpoints that are looked for."""
ADVICE = (
    "Make it under sfbench.data.once_per_node, or on local rank 0 with a barrier before the "
    "others go on."
)


def check(launch: LaunchFacts) -> CheckResult:
    """Fail if data made during set-up is made twice, or read with no sync point in between."""
    made = False
    for a, b in same_host(launch):
        for first, second in ((a, b), (b, a)):
            made = made or any(w.setup and not w.saved for w in first.written)
            text = _made_twice(first, second, launch) or _read_early(first, second)
            if text:
                return result(ID, "fail", f"{text}. {ADVICE}")
    if not made:
        text = "No data was made. (Data that stands already is not made again: remove it to see.)"
        return result(ID, "not-applicable", text)
    return result(ID, "pass", "Data is made by one rank of the node and read when it is complete.")


def _made_twice(a: RankEvidence, b: RankEvidence, launch: LaunchFacts) -> str | None:
    for mine, _ in both_write(a, b):
        if mine.setup and is_read(mine.path, launch):
            return f"Ranks {a.rank} and {b.rank} both made {short(mine.path)}{at(mine.line)}"
    return None


def _read_early(writer: RankEvidence, reader: RankEvidence) -> str | None:
    """What one rank makes and another looks for without having met it in between."""
    own = {written.path for written in reader.written}
    made = Counter(str(Path(written.path).parent) for written in writer.written)
    folders = {folder for folder, files in made.items() if files >= DATASET}
    for written in writer.written:
        if not written.setup or written.appends or written.size_bytes == 0:
            continue
        for read in reader.reads:
            about = read.path == written.path or (
                read.path in folders and read.path == str(Path(written.path).parent)
            )
            early = _early(written, read) if about and read.path not in own else None
            if early:
                return (
                    f"Rank {reader.rank} read {short(read.path)}{at(read.line)} {early} rank "
                    f"{writer.rank} had made it{at(written.line)}"
                )
    return None


def _early(written: Written, read: Read) -> str | None:
    """Whether a read came before the file was complete, or after it by luck alone."""
    if read.sync_point != written.sync_point:
        return None
    if written.modified_s is not None and read.at_s > written.modified_s:
        # A rank that slept or took a lock may have waited until the file was there.
        return None if read.waited else "without waiting until"
    return "before" if read.found or not read.waited else None
