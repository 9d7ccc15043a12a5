"""Ranks train on the same samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sfbench.checks.facts import LaunchFacts, Status, at, result, training_loaders
from sfbench.common.schema import CheckResult
from sfbench.common.units import things
from sfbench.protocol.evidence import Loader

ID = "data-sharding"
FEWEST = 4
"""Samples (or batches) that have to be compared."""
DISTINCT = 3
"""Different samples that must be among them: constant data tells nothing."""
MUCH = 0.1
"""Part of the samples that two ranks may have in common by padding or by chance."""
HALF = 0.5
MOST = 0.9
AUGMENTED = "augmented differently"
ADVICE = (
    "Use DistributedSampler (or sfbench.data.distributed_loader); an IterableDataset takes its "
    "rank's share in __iter__ (sfbench.data.shard)."
)


def check(launch: LaunchFacts) -> CheckResult:
    """Fail if two ranks of a data-parallel group were given the same samples."""
    found = list(_found(launch))
    for status in ("fail", "warn"):
        text = next((text for worse, text in found if worse == status), None)
        if text is not None:
            return result(ID, status, f"{text}. {ADVICE}")
    if not found:
        return result(ID, "not-applicable", _nothing(launch))
    note = next((text for _, text in found if text), "Ranks train on different samples.")
    return result(ID, "pass", note)


def _found(launch: LaunchFacts) -> Iterator[tuple[Status, str]]:
    """What each comparison of two ranks' loaders says."""
    repeats = [repeated_over(loaders) for loaders in _alike(launch)]
    for a, b in launch.peers():
        pairs = zip(training_loaders(a), training_loaders(b), strict=False)
        for place, (mine, theirs) in enumerate(pairs):
            found = _compare(mine, theirs, len(a.peers))
            if found is None:
                continue
            status, seen = found
            times = repeats[place] if place < len(repeats) else 0
            if times and seen.endswith(AUGMENTED):
                yield "pass", _repeated(mine, times)
            elif seen:
                yield status, f"Ranks {a.rank} and {b.rank} {seen}{at(mine.line)}"
            else:
                yield status, ""


def _alike(launch: LaunchFacts) -> Iterator[tuple[Loader, ...]]:
    """Training loaders by their place in the script, on all ranks."""
    yield from zip(*map(training_loaders, launch.ranks), strict=False)


def _repeated(loader: Loader, times: int) -> str:
    return (
        f"{loader.sampler} gives each sample {things(times, 'time')}, to one rank after the "
        "other, and each "
        f"augments it in its own way: repeated augmentation{at(loader.line)}."
    )


def repeated_over(loaders: Sequence[Loader]) -> int:
    """How often a sampler deals each sample to the ranks in turn, if it does; else 0.

    Taken in turn from the ranks, such indices come in runs of one length (Hoffer et al. 2020).
    """
    ranks, length = len(loaders), min((len(loader.indices) for loader in loaders), default=0)
    dealt = [loaders[place % ranks].indices[place // ranks] for place in range(ranks * length)]
    runs = [len(list(run)) for _, run in groupby(dealt)][1:-1]
    if len(runs) < FEWEST:
        return 0
    times = max(set(runs), key=runs.count)
    if times < 2 or runs.count(times) < MOST * len(runs):
        return 0
    # All ranks have the same order then: so has a sampler that does not know of ranks.
    told_by_name = "rep" in loaders[0].sampler.lower() or "RA" in loaders[0].sampler
    return times if times % ranks or told_by_name else 0


def _nothing(launch: LaunchFacts) -> str:
    if not any(True for _ in launch.peers()) and len(launch.ranks) > 1:
        return "No two ranks hold replicas: they share one model, and may share its samples."
    readers = [bool(loader.dataset) for rank in launch.ranks for loader in training_loaders(rank)]
    if any(readers) and not all(readers):
        return "One rank reads for the others and hands each its part."
    return "Too few samples were seen to compare ranks by."


def _compare(a: Loader, b: Loader, ranks: int) -> tuple[Status, str] | None:
    """``fail``, ``warn`` or ``pass`` with what was seen; None if nothing can be compared."""
    count = min(len(a.contents), len(b.contents))
    if bool(a.dataset) != bool(b.dataset):
        return None  # one reads for the other, which shows what its model is given
    if a.whole_batches != b.whole_batches or count < (2 if a.whole_batches else FEWEST):
        return None
    distinct = len(set(a.contents[:count]))
    if a.contents[:count] == b.contents[:count] and distinct >= min(DISTINCT, count):
        unit = "batches" if a.whole_batches else "samples"
        return "fail", f"were given the same {count} {unit} in the same order"
    if a.indices and b.indices and not a.whole_batches:
        return _by_index(a, b, ranks)
    return _by_content(a, b, count)


def _by_index(a: Loader, b: Loader, ranks: int) -> tuple[Status, str]:
    """Samplers that know indices: which do both ranks get, and do these mean the same sample?"""
    ours, theirs = _by_number(a, ranks), _by_number(b, ranks)
    common = sorted(ours.keys() & theirs.keys())
    if len(common) > max(ranks, MUCH * min(len(ours), len(theirs))):
        if _drawn(a, ranks) and _drawn(b, ranks) and not _same_places(a, b):
            return "pass", f"draw from {a.dataset} with replacement: some samples are common"
        return _same_numbers(a, b, [(ours[i], theirs[i]) for i in common])
    alike = (
        all(_agrees(a, b, ours[i], theirs[i]) is not False for i in common)
        and a.dataset_digest == b.dataset_digest
    )
    if a.takes_all and b.takes_all and a.dataset_size == b.dataset_size and alike:
        return "fail", f"each go through all {a.dataset_size} samples of {a.dataset}"
    return "pass", ""


def _drawn(loader: Loader, ranks: int) -> bool:
    """Whether a rank is given the same samples again and again within one epoch."""
    numbers = loader.indices[: _of_an_epoch(loader, ranks)]
    return len(set(numbers)) < (1 - MUCH) * len(numbers)


def _same_places(a: Loader, b: Loader) -> bool:
    """Whether two ranks are given the same sample at the same time, as a rule."""
    pairs = list(zip(a.indices, b.indices, strict=False))
    return sum(x == y for x, y in pairs) > HALF * len(pairs)


def _same_numbers(a: Loader, b: Loader, places: list[tuple[int, int]]) -> tuple[Status, str]:
    equal = sum(a.contents[i] == b.contents[j] for i, j in places)
    seen = f"were given {len(places)} of the same samples of {a.dataset}"
    if equal > HALF * len(places):
        return "fail", seen
    votes = [_agrees(a, b, i, j) for i, j in places]
    known = {a.labels[i] for i, _ in places} if a.labels else set()
    if None in votes:
        same = a.dataset_digest == b.dataset_digest
        return ("warn", f"{seen}, {AUGMENTED}") if same else ("pass", "")
    if sum(v is True for v in votes) > MOST * len(votes) and len(known) >= DISTINCT:
        return "fail", f"{seen}, {AUGMENTED}"
    return "pass", ""


def _agrees(a: Loader, b: Loader, i: int, j: int) -> bool | None:
    """Whether two samples of one index are the same; None if only augmented contents differ."""
    if a.contents[i] == b.contents[j]:
        return True
    if not a.labels or not b.labels:
        return None
    return a.labels[i] == b.labels[j]


def _by_number(loader: Loader, ranks: int) -> dict[int, int]:
    numbers = loader.indices[: _of_an_epoch(loader, ranks)]
    return {number: place for place, number in enumerate(numbers)}


def _of_an_epoch(loader: Loader, ranks: int) -> int:
    """How many of the indices belong to the first epoch: a pass need not end with it.

    Ranks change their shares from epoch to epoch, and may have in common what they did not have in
    the same one.
    """
    seen = min(len(loader.indices), len(loader.contents))
    goes_on = len(set(loader.indices[:seen])) < seen
    if not goes_on or loader.dataset_size is None:
        return seen
    return min(seen, max(FEWEST, -(-loader.dataset_size // ranks)))


def _by_content(a: Loader, b: Loader, count: int) -> tuple[Status, str]:
    """No indices: are most samples of one rank also the other's?"""
    ours, theirs = set(a.contents[:count]), set(b.contents[:count])
    common = len(ours & theirs)
    varied = min(len(ours), len(theirs)) > MOST * count
    if varied and common > HALF * count:
        return "fail", f"were given {common} of the same {count} samples"
    return "pass", ""
