"""What stands in for the loaders on the rungs that do not load."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from sfbench.probe.replaying.batch import fingerprint
from sfbench.probe.replaying.ring import Ring

FINGERPRINTS = 8
"""First batches whose contents are compared between ranks."""


class RungReplay:
    """Keeps batches while the real loader runs, and hands them out while ``active``."""

    def __init__(self, trains: Callable[[Hashable], bool]) -> None:
        self._trains = trains
        self.ring: Ring | None = None
        """Set if rungs will need it; batches are copied from then on."""
        self.active = False
        self.discovering = True
        self.fingerprints: list[float] = []

    def replays(self, key: Hashable) -> bool:
        """Whether this loader's batches come from memory just now; an evaluation's never do."""
        if not self.active or self.ring is None or not torch.is_grad_enabled():
            return False
        return self.ring.count(key) > 0

    @property
    def keeps(self) -> bool:
        """Whether it wants to see batches that are fetched."""
        return self.discovering or (self.ring is not None and not self.active)

    @property
    def wants_more(self) -> bool:
        """Whether more batches would be kept."""
        return self.ring is not None and not self.ring.full

    def next_batch(self, key: Hashable) -> tuple[Any, int]:
        """The next batch from memory and its samples."""
        assert self.ring is not None
        return self.ring.take(key)

    def keep(self, key: Hashable, batch: Any, samples: int) -> None:
        """Take note of a batch that was fetched for real."""
        if self.discovering and len(self.fingerprints) < FINGERPRINTS:
            self.fingerprints.append(fingerprint(batch))
        trains = torch.is_grad_enabled() and self._trains(key)
        if trains and self.ring is not None and not self.active:
            self.ring.keep(key, batch, samples)
