"""Ranks have different numbers of batches: the one with fewer leaves, the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sfbench.checks.facts import LaunchFacts, Status, at, result, training_loaders
from sfbench.common.schema import CheckResult
from sfbench.common.units import things
from sfbench.protocol.evidence import Epoch, Loader

ID = "uneven-inputs"
ADVICE = (
    "Give all ranks the same number of batches (drop_last=True in DistributedSampler and "
    "DataLoader), or train inside DDP's Join."
)


def check(launch: LaunchFacts) -> CheckResult:
    """Fail if ranks parted, or if their loaders run out at different numbers of batches."""
    if launch.failure is not None and launch.failure.kind == "ranks-disagree":
        return result(ID, "fail", launch.failure.message)
    found = [_compare(loaders) for loaders in _alike(launch)]
    if not found:
        return result(ID, "not-applicable", "No DataLoader was seen on all ranks.")
    if any(rank.joins for rank in launch.ranks):
        return result(ID, "pass", "Join lets ranks run out of inputs one after the other.")
    status, text = next((f for f in found if f[0] != "pass"), found[0])
    if status == "fail" and any(rank.takes_minimum for rank in launch.ranks):
        status = "warn"
        text += " (The script takes a minimum over ranks before: it may stop in time.)"
    return result(ID, status, text)


def _alike(launch: LaunchFacts) -> Iterator[list[Loader]]:
    """Training loaders by their place in the script, on all ranks."""
    if len(launch.ranks) < 2:
        return
    yield from (list(same) for same in zip(*map(training_loaders, launch.ranks), strict=False))


def _compare(loaders: Sequence[Loader]) -> tuple[Status, str]:
    whole = _whole_epochs(loaders)
    for epochs in whole:
        counts = [epoch.batches for epoch in epochs]
        if len(set(counts)) > 1:
            goes_on = any(e.cycled for loader in loaders for e in loader.epochs)
            return ("warn" if goes_on else "fail"), _differing(counts, loaders[0])
    if whole:
        return "pass", f"All ranks have {whole[0][0].batches} batches per epoch."
    lengths = [loader.length for loader in loaders if loader.length is not None]
    if len(lengths) < len(loaders) or len(set(lengths)) == 1:
        return "pass", "All ranks have as many batches, as far as was seen."
    if _left_alike(loaders):
        return (
            "pass",
            "The script leaves its loaders after the same number of batches on all ranks.",
        )
    goes_on = any(epoch.cycled for loader in loaders for epoch in loader.epochs)
    return ("warn" if goes_on else "fail"), _differing(lengths, loaders[0])


def _whole_epochs(loaders: Sequence[Loader]) -> list[tuple[Epoch, ...]]:
    """Epochs that ended by themselves on all ranks."""
    together = zip(*(loader.epochs for loader in loaders), strict=False)
    return [epochs for epochs in together if all(epoch.ended for epoch in epochs)]


def _left_alike(loaders: Sequence[Loader]) -> bool:
    """Whether the script itself left some epoch at the same batch on all ranks."""
    together = zip(*(loader.epochs[:-1] for loader in loaders), strict=False)
    return any(
        len({epoch.batches for epoch in epochs}) == 1
        and epochs[0].batches > 1
        and not any(epoch.ended or epoch.shortened for epoch in epochs)
        for epochs in together
    )


def _differing(counts: Sequence[int], loader: Loader) -> str:
    least = min(counts)
    rank, other = counts.index(least), next(r for r, n in enumerate(counts) if n > least)
    return (
        f"Rank {rank} has {things(least, 'batch')} per epoch, rank {other} has {counts[other]}"
        f"{at(loader.line)}: rank {rank} leaves first and rank {other} waits in step {least + 1}. "
        f"{ADVICE}"
    )
