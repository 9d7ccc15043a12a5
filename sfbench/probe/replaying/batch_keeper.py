"""Shows batches to the replay, in steps that pass unmeasured only: a copy costs time."""

from __future__ import annotations

from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from sfbench.probe.hooks.loader_hooks import LoaderHooks
from sfbench.probe.hooks.taps import Listener, Taps
from sfbench.probe.replaying.replay import RungReplay
from sfbench.protocol.feeding import Batches


class BatchKeeper:
    """Listens to what loaders hand out while it is told to."""

    def __init__(self, taps: Taps, loaders: LoaderHooks, replay: RungReplay) -> None:
        self._taps = taps
        self._loaders = loaders
        self._replay = replay
        self._listeners: list[Listener] = []

    def listen(self, on: bool) -> None:
        """Begin, or leave."""
        if on and not self._listeners:
            self._listeners = [
                self._taps.wrap(owner, "__next__", self._around_next)
                for owner in (_BaseDataLoaderIter, Batches)
            ]
        elif not on:
            while self._listeners:
                self._listeners.pop().leave()

    def _around_next(self, original: Any) -> Any:
        def next_batch(iterator: Any) -> Any:
            batch = original(iterator)
            source = self._loaders.sources.get(iterator)
            if source is not None and not self._loaders.depth.value and self._replay.keeps:
                self._replay.keep(source.key, batch, source.samples)
            return batch

        return next_batch
