"""Batches that a script keeps and trains on again, as ``itertools.cycle`` does: no fetch. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SILENT = 16
"""After so many steps without a fetch, the batches are those that the script has kept."""


@dataclass(slots=True)
class KeptBatches:
    """Whether a loop trains on kept batches, and how many samples a step of it then has.

    It does if each step fetched, until ``SILENT`` and more in a row do not. A loop that fetches in
    some steps only, or one that is ahead of its loader, is another thing.
    """

    fetched: int = 0
    """Samples of the steps that fetched."""
    steps: int = 0
    """Those steps; -1: the loop does not always fetch."""
    silent: int = 0
    """Steps since then."""

    def samples(self, fetches: int, samples: int, apart: bool) -> int:
        """Samples of this step from kept batches; those of the first silent steps with the last.

        ``fetches``, ``samples``: what it fetched. ``apart``: another thread did, so that a step
        without a fetch says nothing.
        """
        if apart:
            self.steps = -1
        if self.steps < 0:
            return 0
        if fetches:
            self.steps = -1 if 0 < self.silent < SILENT else self.steps + 1
            self.fetched += samples
            return 0
        self.silent += 1
        if self.silent < SILENT or not self.steps:
            return 0
        usual = round(self.fetched / self.steps)
        return usual * (SILENT if self.silent == SILENT else 1)
