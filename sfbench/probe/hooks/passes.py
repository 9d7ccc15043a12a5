"""One pass over a loader: what is known of it, and how long it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)


class Source:
    """What is known of one pass over a loader."""

    __slots__ = (
        "batches", "counted", "counts", "drained", "key", "left", "loader", "order", "room",
        "samples", "watch",
    )  # fmt: skip

    def __init__(self, key: Hashable, loader: Any) -> None:
        self.key = key
        self.loader = loader
        """None: the iterator was made before the probe came."""
        self.counts: deque[int | None] = deque()
        """Samples of the batches that are under way, if the indices tell them."""
        self.counted = False
        """They did for the last batch."""
        self.batches = 0
        """Handed out so far, as far as they were loaded."""
        self.samples = 0
        """Of the last one."""
        self.left: float | None = None
        """Batches until it ends; set once some of them were replayed."""
        self.drained = 0
        """Batches that were thrown away."""
        self.room = 0
        """How many more indices somebody wants to know."""
        self.order: list[Any] = []
        """Those that the sampler gave out first, by batch."""
        self.watch: Any = None
        """Of whoever looks closer."""

    @property
    def fresh(self) -> bool:
        """Nothing has come of it so far."""
        return not (self.batches or self.counts or self.left is not None)


_FINITE = {SequentialSampler, RandomSampler, SubsetRandomSampler, DistributedSampler}


def pass_length(loader: Any) -> int | None:
    """Batches of one pass, where the sampler is one of torch's that end; None elsewhere.

    The length that another sampler tells need not be where it ends.
    """
    if loader is None or type(getattr(loader, "sampler", None)) not in _FINITE:
        return None
    if type(loader.batch_sampler) not in {BatchSampler, type(None)}:
        return None
    return len(loader)


def under_way(iterator: Any) -> int:
    """Batches that workers have been asked for and have not made yet; 0 if that is not known."""
    asked = getattr(iterator, "_tasks_outstanding", 0)
    made = getattr(iterator, "_worker_result_queue", None)
    pinned = getattr(iterator, "_data_queue", None)
    if made is None or pinned is None:
        return 0
    ready = made.qsize() + (pinned.qsize() if pinned is not made else 0)
    return int(asked) - int(ready)
