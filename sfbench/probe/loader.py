"""Hooks on DataLoader iteration: who fetched, how long it took, how many samples came.

Hooked below any subclass: the iterator's ``__next__`` and the loader's ``__iter__``. A loader that
iterates another one in the same thread counts once, as the outer one. Two DataLoader objects over
the same dataset with the same batch size and kind of sampler are the same loader (scripts make
them anew each epoch).
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
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind

from sfbench.feeding import Batches
from sfbench.probe.batch import samples_in
from sfbench.probe.events import Event, Fetch
from sfbench.probe.patches import Patches

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
        self._next: Any = None

    def install(self, patches: Patches) -> None:
        """Patch DataLoader, its iterators and ``sfbench.batches``."""
        self._next = _BaseDataLoaderIter.__next__
        patches.wrap(_BaseDataLoaderIter, "__next__", self._around_next)
        patches.wrap(_BaseDataLoaderIter, "_next_index", self._around_next_index)
        patches.wrap(_BaseDataLoaderIter, "_reset", self._around_reset)
        patches.wrap(DataLoader, "_get_iterator", self._around_get_iterator)
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
                if getattr(iterator, "_sfbench_counts", None):
                    iterator._sfbench_counts.popleft()
            except StopIteration:
                break
            iterator._sfbench_drained = getattr(iterator, "_sfbench_drained", 0) + 1
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

    def _around_get_iterator(self, original: Any) -> Any:
        def get_iterator(loader: Any) -> Any:
            iterator = original(loader)
            iterator._sfbench_key = key = self._key(loader)
            self.iterators[key] = iterator
            return iterator

        return get_iterator

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
            key = getattr(iterator, "_sfbench_key", None) or id(iterator)
            replays = self._replay.active and self._replay.replays(key)
            if replays or hasattr(iterator, "_sfbench_replayed"):
                self._end_in_time(iterator, key, replays=replays)
            if replays:
                return self.replayed(key)
            return self._fetched(key, original, iterator)

        return next_batch

    def _end_in_time(self, iterator: Any, key: Hashable, *, replays: bool) -> None:
        """A pass in which batches were replayed ends after as many as ever.

        Scripts rely on it, and what they do between two passes is no part of loading.
        """
        replayed = getattr(iterator, "_sfbench_replayed", 0)
        drained = getattr(iterator, "_sfbench_drained", 0)
        length = pass_length(self.loaders.get(key))
        if length is not None and iterator._num_yielded - drained + replayed >= length:
            self._unfinished.discard(key)
            raise StopIteration
        iterator._sfbench_replayed = replayed + replays

    def _around_source_next(self, original: Any) -> Any:
        def next_batch(source: Any) -> Any:
            if self._nested():
                return original(source)
            key = id(source)
            self._alive.setdefault(key, source)
            if self._replay.replays(key):
                return self.replayed(key)
            return self._fetched(key, original, source)

        return next_batch

    def _around_next_index(self, original: Any) -> Any:
        def next_index(iterator: Any) -> Any:
            index = original(iterator)
            if not hasattr(iterator, "_sfbench_counts"):
                iterator._sfbench_counts = deque()
            listed = type(index) in _LISTS
            iterator._sfbench_counted = listed and iterator._dataset_kind == _DatasetKind.Map
            iterator._sfbench_counts.append(len(index) if iterator._sfbench_counted else None)
            return index

        return next_index

    def _around_reset(self, original: Any) -> Any:
        def reset(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            iterator._sfbench_counts = deque()
            for name in ("_sfbench_replayed", "_sfbench_drained"):
                vars(iterator).pop(name, None)
            return original(iterator, *args, **kwargs)

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
            iterator = make()
        finally:
            self._depth.value = 0
        self._told_start(key, began)
        return iterator

    def _told_start(self, key: Hashable, began: float) -> None:
        left = key in self._unfinished
        self._unfinished.add(key)
        main, grad = threading.get_ident() == self._main, torch.is_grad_enabled()
        self.feed(Fetch(key, began, time.perf_counter(), 0, main, grad, True, left))

    def _fetched(self, key: Hashable, original: Any, source: Any) -> Any:
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
        counts = getattr(source, "_sfbench_counts", None)
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
