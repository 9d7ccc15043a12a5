"""Hooks on DataLoader iteration: who fetched, how long it took, how many samples came.

Hooked below any subclass, in the iterator that all of torch's loaders use: it is given its loader
when it is made. So a subclass may make its iterators by itself. A loader that iterates another one
in the same thread counts once, as the outer one. Two DataLoader objects over the same dataset with
the same batch size and kind of sampler are the same loader (scripts make them anew each epoch).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from sfbench.probe.batch import samples_in
from sfbench.probe.events import Event, Fetch
from sfbench.probe.patches import Patches
from sfbench.probe.weak import WeakTable
from sfbench.protocol.feeding import Batches

SETTLE_POLL_S = 0.002


class Replay(Protocol):
    """What stands in for loaders while a rung replays batches."""

    active: bool
    """Whether it does just now."""

    @property
    def keeps(self) -> bool:
        """Whether it wants to see batches that are fetched."""
        ...

    def replays(self, key: Hashable) -> bool:
        """Whether this loader's batches come from memory just now."""
        ...

    def next_batch(self, key: Hashable) -> tuple[Any, int]:
        """The next batch from memory and its samples."""
        ...

    def keep(self, key: Hashable, batch: Any, samples: int) -> None:
        """A batch has been fetched for real: a chance to keep a copy."""
        ...


_LISTS = {list, tuple}


class Source:
    """What is known of one iterator of a loader."""

    __slots__ = ("counted", "counts", "drained", "key", "loader", "replayed")

    def __init__(self, key: Hashable, loader: Any) -> None:
        self.key = key
        self.loader = loader
        self.counts: deque[int | None] = deque()
        """Samples of the batches that are under way, where the indices tell them."""
        self.counted = False
        """They did for the last batch."""
        self.restart()

    def restart(self) -> None:
        """A pass begins."""
        self.counts.clear()
        self.replayed = self.drained = 0


class LoaderHooks:
    """Installs itself on torch's loaders and feeds events."""

    def __init__(self, feed: Callable[[Event], None], replay: Replay) -> None:
        self.feed = feed
        self._replay = replay
        self._depth = threading.local()
        self._main = threading.get_ident()
        self._alive: dict[Hashable, Any] = {}
        self._unfinished: set[Hashable] = set()
        self.iterators: dict[Hashable, Any] = {}
        """The newest real iterator of each loader."""
        self.loaders: dict[Hashable, Any] = {}
        self.sources: WeakTable[Source] = WeakTable()
        """By iterator."""
        self._next: Any = None

    def install(self, patches: Patches) -> None:
        """Patch DataLoader, its iterators and ``sfbench.batches``."""
        self._next = _BaseDataLoaderIter.__next__
        patches.wrap(_BaseDataLoaderIter, "__next__", self._around_next)
        patches.wrap(_BaseDataLoaderIter, "_next_index", self._around_next_index)
        patches.wrap(_BaseDataLoaderIter, "_reset", self._around_reset)
        patches.wrap(_BaseDataLoaderIter, "__init__", self._around_made)
        for kind in (_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter):
            patches.wrap(kind, "__init__", self._around_whole_made)
        patches.wrap(DataLoader, "__iter__", self._around_iter)
        patches.wrap(Batches, "__next__", self._around_source_next)

    def drain(self, key: Hashable) -> int:
        """Throw away what the loader has prefetched, so that its queue is as empty as in real life.

        Returns the number of batches asked for (workers x prefetch_factor), 0 without workers.
        """
        iterator: Any = self.iterators.get(key)
        queued = self.queue_length(key)
        for _ in range(queued if iterator is not None else 0):
            try:
                self._next(iterator)
            except StopIteration:
                break
            source = self._source(iterator)
            if source.counts:
                source.counts.popleft()
            source.drained += 1
        return queued

    def settle(self, key: Hashable, limit_s: float) -> None:
        """Wait until the workers have filled the loader's queue, or for ``limit_s``.

        Until then they take cores from what comes after a rung that loads.
        """
        until = time.perf_counter() + limit_s
        while _under_way(self.iterators.get(key)) > 0 and time.perf_counter() < until:
            time.sleep(SETTLE_POLL_S)

    def queue_length(self, key: Hashable) -> int:
        """workers x prefetch_factor of a loader."""
        loader = self.loaders.get(key)
        return (loader.num_workers * (loader.prefetch_factor or 0)) if loader is not None else 0

    def _key(self, loader: Any) -> Hashable:
        sampler = getattr(loader, "sampler", None) or getattr(loader, "batch_sampler", None)
        key = (id(loader.dataset), type(sampler).__name__, loader.batch_size)
        # The dataset must outlive its id.
        self._alive.setdefault(key, loader.dataset)
        self.loaders[key] = loader
        return key

    def _source(self, iterator: Any) -> Source:
        """What is known of an iterator; one that was made before the probe came has no loader."""
        known = self.sources.get(iterator)
        return self.sources.put(iterator, Source(id(iterator), None)) if known is None else known

    def _around_made(self, original: Any) -> Any:
        def init(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            key = self._key(loader)
            self.sources.put(iterator, Source(key, loader))
            self.iterators[key] = iterator
            if self._nested():
                original(iterator, loader, *args, **kwargs)
            else:
                # The loader's class starts its passes by itself, with iterators of its own kind.
                self._started(key, lambda: original(iterator, loader, *args, **kwargs))

        return init

    def _around_whole_made(self, original: Any) -> Any:
        def init(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            if self._nested():
                original(iterator, loader, *args, **kwargs)
            else:  # the same, and what is timed holds the start of its workers
                key = self._key(loader)
                self._started(key, lambda: original(iterator, loader, *args, **kwargs))

        return init

    def _around_iter(self, original: Any) -> Any:
        def iterate(loader: Any) -> Any:
            if self._nested():
                return original(loader)
            key = self._key(loader)
            if self._replay.replays(key):
                self._told_start(key, time.perf_counter())
                return _Later(lambda: original(loader), self, key)
            return self._started(key, lambda: original(loader))

        return iterate

    def _around_next(self, original: Any) -> Any:
        def next_batch(iterator: Any) -> Any:
            if getattr(self._depth, "value", 0):
                return original(iterator)
            source = self._source(iterator)
            key = source.key
            replays = self._replay.active and self._replay.replays(key)
            if replays or source.replayed:
                self._end_in_time(iterator, source, replays=replays)
            if replays:
                return self.replayed(key)
            return self._fetched(key, original, iterator, source.counts)

        return next_batch

    def _end_in_time(self, iterator: Any, source: Source, *, replays: bool) -> None:
        """A pass in which batches were replayed ends after as many as ever.

        Scripts rely on it, and what they do between two passes is no part of loading.
        """
        length = pass_length(source.loader)
        done = iterator._num_yielded - source.drained + source.replayed
        if length is not None and done >= length:
            self._unfinished.discard(source.key)
            raise StopIteration
        source.replayed += replays

    def _around_source_next(self, original: Any) -> Any:
        def next_batch(source: Any) -> Any:
            if self._nested():
                return original(source)
            key = id(source)
            self._alive.setdefault(key, source)
            if self._replay.replays(key):
                return self.replayed(key)
            return self._fetched(key, original, source, None)

        return next_batch

    def _around_next_index(self, original: Any) -> Any:
        def next_index(iterator: Any) -> Any:
            index = original(iterator)
            source = self._source(iterator)
            listed = type(index) in _LISTS
            source.counted = listed and iterator._dataset_kind == _DatasetKind.Map
            source.counts.append(len(index) if source.counted else None)
            return index

        return next_index

    def _around_reset(self, original: Any) -> Any:
        def reset(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            source = self._source(iterator)
            source.restart()
            if self._nested():
                return original(iterator, *args, **kwargs)
            return self._started(source.key, lambda: original(iterator, *args, **kwargs))

        return reset

    def replayed(self, key: Hashable) -> Any:
        """A batch from memory, told as a fetch."""
        began = time.perf_counter()
        batch, samples = self._replay.next_batch(key)
        self._tell(key, began, samples)
        return batch

    def _started(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Time the making of an iterator."""
        began = time.perf_counter()
        self._depth.value = 1
        try:
            made = make()
        finally:
            self._depth.value = 0
        self._told_start(key, began)
        return made

    def _told_start(self, key: Hashable, began: float) -> None:
        left = key in self._unfinished
        self._unfinished.add(key)
        main, grad = threading.get_ident() == self._main, torch.is_grad_enabled()
        self.feed(Fetch(key, began, time.perf_counter(), 0, main, grad, True, left))

    def _fetched(self, key: Hashable, original: Any, source: Any, counts: Any) -> Any:
        """Time a fetch. In every step: as few calls as can be."""
        depth, began = self._depth, time.perf_counter()
        depth.value = 1
        try:
            batch = original(source)
        except StopIteration:
            self._unfinished.discard(key)
            raise
        finally:
            depth.value = 0
        known = counts.popleft() if counts else None
        samples = samples_in(batch) if known is None else known
        grad = torch.is_grad_enabled()
        main = threading.get_ident() == self._main
        self.feed(Fetch(key, began, time.perf_counter(), samples, main, grad))
        if self._replay.keeps:
            self._replay.keep(key, batch, samples)
        return batch

    def _tell(self, key: Hashable, began: float, samples: int) -> None:
        main, grad = threading.get_ident() == self._main, torch.is_grad_enabled()
        self.feed(Fetch(key, began, time.perf_counter(), samples, main, grad))

    def _nested(self) -> bool:
        return getattr(self._depth, "value", 0) > 0


class _Later:
    """An iterator asked for while batches come from memory: the real one is made when needed."""

    def __init__(self, make: Callable[[], Iterator[Any]], hooks: LoaderHooks, key: Hashable):
        self._make = make
        self._hooks = hooks
        self._key = key
        self._real: Iterator[Any] | None = None
        self._left = pass_length(hooks.loaders.get(key))

    def __iter__(self) -> _Later:
        return self

    def __next__(self) -> Any:
        if self._left == 0:
            self._hooks._unfinished.discard(self._key)
            raise StopIteration
        batch = self._batch()
        if self._left is not None:
            self._left -= 1
        return batch

    def _batch(self) -> Any:
        if self._hooks._replay.replays(self._key):
            return self._hooks.replayed(self._key)
        if self._real is None:
            # It goes on with a pass that has begun; none was left unfinished.
            self._hooks._unfinished.discard(self._key)
            self._real = self._hooks._started(self._key, self._make)
        return next(self._real)


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


def _under_way(iterator: Any) -> int:
    """Batches that workers have been asked for and have not made yet; 0 where that is not known."""
    asked = getattr(iterator, "_tasks_outstanding", 0)
    made = getattr(iterator, "_worker_result_queue", None)
    pinned = getattr(iterator, "_data_queue", None)
    if made is None or pinned is None:
        return 0
    ready = made.qsize() + (pinned.qsize() if pinned is not made else 0)
    return int(asked) - int(ready)
