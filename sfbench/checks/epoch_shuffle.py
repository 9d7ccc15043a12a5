"""Every epoch has the same order: set_epoch is never called."""

from __future__ import annotations

from itertools import pairwise

from sfbench.checks.facts import LaunchFacts, at, result, training_loaders
from sfbench.common.schema import CheckResult
from sfbench.common.units import things
from sfbench.protocol.evidence import Epoch, Loader

ID = "epoch-shuffle"
FEWEST = 6
"""Indices that have to be compared: a shorter order may repeat by chance."""


def check(launch: LaunchFacts) -> CheckResult:
    """Fail if a sampler that is meant to shuffle gives the same order in every epoch."""
    seen = False
    for rank in launch.ranks:
        for loader in training_loaders(rank):
            repeated = repeats(loader)
            seen = seen or repeated is not None
            if repeated and _ordered(loader.epochs[0].order):
                return result(ID, "pass", "Not shuffled: samples come in ascending order.")
            if repeated:
                return _repeated(loader)
    if not seen:
        return result(ID, "not-applicable", "Fewer than two epochs with known indices were seen.")
    return result(ID, "pass", "Epochs come in different orders.")


def repeats(loader: Loader) -> bool | None:
    """Whether all epochs have the same order; None if two cannot be compared."""
    orders = [epoch.order for epoch in loader.epochs if _counts(epoch)]
    length = min(map(len, orders), default=0)
    if len(orders) < 2 or length < FEWEST:
        return None
    return len({order[:length] for order in orders}) == 1


def _counts(epoch: Epoch) -> bool:
    """A single batch, taken to look at, is no epoch."""
    return bool(epoch.order) and (epoch.batches > 1 or epoch.ended)


def _ordered(order: tuple[int, ...]) -> bool:
    return all(a < b for a, b in pairwise(order))


def _repeated(loader: Loader) -> CheckResult:
    text = (
        f"{things(len(loader.epochs), 'epoch')} had the same order under "
        f"{loader.sampler}{at(loader.line)}: "
        "call sampler.set_epoch(epoch) at the start of each."
    )
    meant = loader.shuffles or loader.has_set_epoch
    return result(ID, "fail" if meant else "warn", text)
