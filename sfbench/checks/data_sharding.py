"""Ranks train on the same samples."""

from __future__ import annotations

from sfbench.checks.facts import LaunchFacts, Status, at, result, training_loaders
from sfbench.common.schema import CheckResult
from sfbench.protocol.evidence import Loader

ID = "data-sharding"
FEWEST = 4
"""Samples (or batches) that have to be compared."""
DISTINCT = 3
"""Different samples that must be among them: constant data tells nothing."""
MUCH = 0.1
"""Part of the samples that two ranks may have in common by padding or by chance."""
HALF = 0.5
ADVICE = (
    "Use DistributedSampler (or sfbench.data.distributed_loader); an IterableDataset takes its "
    "rank's share in __iter__ (sfbench.data.shard)."
)


def check(launch: LaunchFacts) -> CheckResult:
    """Fail where two ranks of a data-parallel group were given the same samples."""
    compared, doubt = 0, None
    for a, b in launch.peers():
        for mine, theirs in zip(training_loaders(a), training_loaders(b), strict=False):
            found = _compare(mine, theirs, launch.devices)
            if found is None:
                continue
            compared += 1
            status, seen = found
            text = f"Ranks {a.rank} and {b.rank} {seen}{at(mine.line)}. {ADVICE}"
            if status == "fail":
                return result(ID, "fail", text)
            doubt = doubt or (text if status == "warn" else None)
    if doubt is not None:
        return result(ID, "warn", doubt)
    if not compared:
        return result(ID, "not-applicable", _nothing(launch))
    return result(ID, "pass", "Ranks train on different samples.")


def _nothing(launch: LaunchFacts) -> str:
    if not any(True for _ in launch.peers()) and len(launch.ranks) > 1:
        return "No two ranks hold replicas: they share one model, and may share its samples."
    return "Too few samples were seen to compare ranks by."


def _compare(a: Loader, b: Loader, devices: int) -> tuple[Status, str] | None:
    """``fail``, ``warn`` or ``pass`` with what was seen; None where nothing can be compared."""
    count = min(len(a.contents), len(b.contents))
    if a.whole_batches != b.whole_batches or count < (2 if a.whole_batches else FEWEST):
        return None
    distinct = len(set(a.contents[:count]))
    if a.contents[:count] == b.contents[:count] and distinct >= min(DISTINCT, count):
        unit = "batches" if a.whole_batches else "samples"
        return "fail", f"were given the same {count} {unit} in the same order"
    if a.indices and b.indices and not a.whole_batches:
        return _by_index(a, b, devices)
    return _by_content(a, b, count)


def _by_index(a: Loader, b: Loader, devices: int) -> tuple[Status, str]:
    """Samplers that know indices: which do both ranks get, and do these mean the same sample?"""
    ours, theirs = _by_number(a), _by_number(b)
    common = sorted(ours.keys() & theirs.keys())
    if len(common) > max(devices, MUCH * min(len(ours), len(theirs))):
        return _same_numbers(a, b, [(ours[i], theirs[i]) for i in common])
    alike = (
        all(_agrees(a, b, ours[i], theirs[i]) is not False for i in common)
        and a.dataset_digest == b.dataset_digest
    )
    if a.takes_all and b.takes_all and a.dataset_size == b.dataset_size and alike:
        return "fail", f"each go through all {a.dataset_size} samples of {a.dataset}"
    return "pass", ""


def _same_numbers(a: Loader, b: Loader, places: list[tuple[int, int]]) -> tuple[Status, str]:
    equal = sum(a.contents[i] == b.contents[j] for i, j in places)
    seen = f"were given {len(places)} of the same samples of {a.dataset}"
    if equal > HALF * len(places):
        return "fail", seen
    votes = [_agrees(a, b, i, j) for i, j in places]
    known = {a.labels[i] for i, _ in places} if a.labels else set()
    if None in votes:
        same = a.dataset_digest == b.dataset_digest
        return ("warn", f"{seen}, each time with other contents") if same else ("pass", "")
    if sum(v is True for v in votes) > 0.9 * len(votes) and len(known) >= DISTINCT:
        return "fail", f"{seen}, augmented differently"
    return "pass", ""


def _agrees(a: Loader, b: Loader, i: int, j: int) -> bool | None:
    """Whether two samples of one index are the same; None where only augmented contents differ."""
    if a.contents[i] == b.contents[j]:
        return True
    if not a.labels or not b.labels:
        return None
    return a.labels[i] == b.labels[j]


def _by_number(loader: Loader) -> dict[int, int]:
    return {number: place for place, number in enumerate(loader.indices[: len(loader.contents)])}


def _by_content(a: Loader, b: Loader, count: int) -> tuple[Status, str]:
    """No indices: are most samples of one rank also the other's?"""
    ours, theirs = set(a.contents[:count]), set(b.contents[:count])
    common = len(ours & theirs)
    varied = min(len(ours), len(theirs)) > 0.9 * count
    if varied and common > HALF * count:
        return "fail", f"were given {common} of the same {count} samples"
    return "pass", ""
