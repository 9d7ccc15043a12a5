"""Hooks on DataLoader iteration: who fetched, how long it took, how many samples came.

Hooked below any subclass, in the iterator that all of torch's loaders use: it is given its loader
when it is made. So a subclass may make its iterators by itself. A loader that iterates another one
in the same thread counts once, as the outer one. Two DataLoader objects over the same dataset with
the same batch size and kind of sampler are the same loader (scripts make them anew each epoch).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from sfbench.probe.hooks.events import Fetch
from sfbench.probe.hooks.passes import Source, pass_length, under_way
from sfbench.probe.hooks.pulse import Depth, Pulse, Tell
from sfbench.probe.hooks.taps import Listener, Make, Taps
from sfbench.probe.hooks.weak import WeakTable
from sfbench.probe.replaying.batch import elements_in, samples_in
from sfbench.probe.replaying.replay import RungReplay
from sfbench.protocol.feeding import Batches

SETTLE_POLL_S = 0.002
_LISTS = {list, tuple}
_now = time.perf_counter
_new: Any = tuple.__new__
"""Makes a named tuple without a Python call."""


class LoaderHooks:
    """Installs itself on torch's loaders and tells what they hand out."""

    def __init__(self, pulse: Pulse, replay: RungReplay) -> None:
        self._pulse = pulse
        self._replay = replay
        self.depth = Depth()
        """Not 0: a loader is being asked, and one inside it may be asked as well."""
        self._alive: dict[Hashable, Any] = {}
        self._unfinished: set[Hashable] = set()
        self._listeners: Sequence[tuple[Listener, Make]] = ()
        self.on_pass: Callable[[Source], None] = _nobody
        """Called when a pass is made."""
        self.on_first: Callable[[Source], None] = _nobody
        """Called before the first batch of a pass is fetched."""
        self.on_end: Callable[[Source], None] = _nobody
        """Called when a pass has come to its end."""
        self.iterators: dict[Hashable, Any] = {}
        """The newest real iterator of each loader."""
        self.loaders: dict[Hashable, Any] = {}
        self.sources: WeakTable[Source] = WeakTable()
        """By iterator: the pass that it makes just now."""
        self._original: Any = None

    def install(self, taps: Taps) -> None:
        """Patch DataLoader, its iterators and ``sfbench.batches``."""
        self._original = _BaseDataLoaderIter.__next__
        self._listeners = [
            (taps.wrap(owner, "__next__", make), make)
            for owner, make in (
                (_BaseDataLoaderIter, self._around_next),
                (Batches, self._around_source_next),
            )
        ]
        taps.wrap(_BaseDataLoaderIter, "_next_index", self._around_next_index)
        taps.wrap(_BaseDataLoaderIter, "_reset", self._around_reset)
        taps.wrap(_BaseDataLoaderIter, "__init__", self._around_made)
        for kind in (_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter):
            taps.wrap(kind, "__init__", self._around_whole_made)
        taps.wrap(DataLoader, "__iter__", self._around_iter)

    def connect(self) -> None:
        """Make the hooks anew from what the pulse and the replay say now."""
        for listener, make in self._listeners:
            listener.swap(make)

    def drain(self, key: Hashable) -> int:
        """Throw away what the loader has prefetched, so that its queue is as empty as in real life.

        Returns the number of batches asked for (workers x prefetch_factor), 0 without workers.
        """
        iterator: Any = self.iterators.get(key)
        queued = self.queue_length(key)
        for _ in range(queued if iterator is not None else 0):
            try:
                self._original(iterator)
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
        until = _now() + limit_s
        while under_way(self.iterators.get(key)) > 0 and _now() < until:
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

    def _new_pass(self, iterator: Any, loader: Any) -> Source:
        source = self.sources.put(iterator, Source(self._key(loader), loader))
        self.iterators[source.key] = iterator
        self.on_pass(source)
        return source

    def _around_made(self, original: Any) -> Any:
        def init(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            source = self._new_pass(iterator, loader)
            if self.depth.value:
                original(iterator, loader, *args, **kwargs)
            else:
                # The loader's class starts its passes by itself, with iterators of its own kind.
                self._started(source.key, lambda: original(iterator, loader, *args, **kwargs))

        return init

    def _around_whole_made(self, original: Any) -> Any:
        def init(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            if self.depth.value:
                original(iterator, loader, *args, **kwargs)
            else:  # the same, and what is timed holds the start of its workers
                key = self._key(loader)
                self._started(key, lambda: original(iterator, loader, *args, **kwargs))

        return init

    def _around_iter(self, original: Any) -> Any:
        def iterate(loader: Any) -> Any:
            if self.depth.value:
                return original(loader)
            key = self._key(loader)
            if self._replay.replays(key):
                self._told_start(key, _now())
                return _Later(lambda: original(loader), self, key)
            return self._started(key, lambda: original(loader))

        return iterate

    def _around_next(self, original: Any) -> Any:
        return self._replaying(original) if self._replay.active else self._loading(original)

    def _loading(self, original: Any) -> Any:
        """In every step: as few calls as can be."""
        pulse, depth, by_id = self._pulse, self.depth, self.sources.by_id
        main, ident, graded = pulse.main, threading.get_ident, torch.is_grad_enabled
        ordinary, tell, tell_apart, ask = _ways(pulse)
        ring = self._replay.ring
        unlike = ring is not None and ring.unlike

        def next_batch(iterator: Any) -> Any:
            if depth.value:
                return original(iterator)
            source = by_id.get(id(iterator)) or self._source(iterator)
            if source.left is not None:
                if source.left <= 0:
                    self._ended(source)
                    raise StopIteration
                source.left -= 1
            if not source.batches:
                self.on_first(source)
            began = _now()
            depth.value = 1
            try:
                batch = original(iterator)
            except StopIteration:
                self._ended(source)
                raise
            finally:
                depth.value = 0
            counts, key, grad = source.counts, source.key, graded()
            known = counts.popleft() if counts else None
            source.samples = samples = samples_in(batch) if known is None else known
            source.batches += 1
            ended = _now()
            size = elements_in(batch) if unlike else 0
            trains = ident() == main
            event = _new(Fetch, (key, began, ended, samples, trains, grad, False, False, size))
            if grad and key in ordinary:
                tell(event) if trains else tell_apart(event)
            else:
                ask(event)
            return batch

        return next_batch

    def _replaying(self, original: Any) -> Any:
        """While batches come from memory, but for those of an evaluation.

        In every step: as few calls as can be.
        """
        load, ring = self._loading(original), self._replay.ring
        pulse, depth = self._pulse, self.depth
        if ring is None:
            return load
        main, ident, graded = pulse.main, threading.get_ident, torch.is_grad_enabled
        ordinary, tell, tell_apart, ask = _ways(pulse)
        by_id, serving, take = self.sources.by_id, ring.serving, ring.take

        def next_batch(iterator: Any) -> Any:
            source = by_id.get(id(iterator)) or self._source(iterator)
            key, left = source.key, source.left
            if depth.value or key not in serving or not graded():
                return load(iterator)
            if left is None:
                left = self._rest(iterator, source)
            if left <= 0:
                self._unfinished.discard(key)
                raise StopIteration
            source.left = left - 1
            began = _now()
            batch, samples = take(key)
            trains, size = ident() == main, ring.elements
            event = _new(Fetch, (key, began, _now(), samples, trains, True, False, False, size))
            if key in ordinary:
                tell(event) if trains else tell_apart(event)
            else:
                ask(event)
            return batch

        return next_batch

    def _rest(self, iterator: Any, source: Source) -> float:
        """Batches until a pass ends.

        One in which batches were replayed ends after as many as ever: scripts rely on it, and what
        they do between two passes is no part of loading.
        """
        length = pass_length(source.loader)
        if length is None:
            return math.inf
        done: int = iterator._num_yielded - source.drained
        return length - done

    def _ended(self, source: Source) -> None:
        self._unfinished.discard(source.key)
        self.on_end(source)

    def _around_source_next(self, original: Any) -> Any:
        depth, sources = self.depth, self.sources

        def next_batch(source: Any) -> Any:
            if depth.value:
                return original(source)
            key = id(source)
            self._alive.setdefault(key, source)
            if self._replay.replays(key):
                return self.replayed(key)
            began = _now()
            depth.value = 1
            try:
                batch = original(source)
            except StopIteration:
                self._unfinished.discard(key)
                raise
            finally:
                depth.value = 0
            (sources.get(source) or sources.put(source, Source(key, None))).samples = samples = (
                samples_in(batch)
            )
            self._told(key, began, samples)
            return batch

        return next_batch

    def _around_next_index(self, original: Any) -> Any:
        by_id, kind = self.sources.by_id, _DatasetKind.Map

        def next_index(iterator: Any) -> Any:
            index = original(iterator)
            source = by_id.get(id(iterator)) or self._source(iterator)
            if type(index) in _LISTS and iterator._dataset_kind == kind:
                source.counted, size = True, len(index)
                source.counts.append(size)
            else:
                source.counted, size = False, 1
                source.counts.append(None)
            if source.room > 0 and iterator._dataset_kind == kind:
                source.room -= size
                source.order.append(index)
            return index

        return next_index

    def _around_reset(self, original: Any) -> Any:
        def reset(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            source = self._source(iterator)
            if source.loader is not None and not source.fresh:
                source = self._new_pass(iterator, source.loader)
            if self.depth.value:
                return original(iterator, *args, **kwargs)
            return self._started(source.key, lambda: original(iterator, *args, **kwargs))

        return reset

    def replayed(self, key: Hashable) -> Any:
        """A batch from memory, told as a fetch."""
        began = _now()
        batch, samples = self._replay.next_batch(key)
        self._told(key, began, samples)
        return batch

    def _started(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Time the making of an iterator."""
        began = _now()
        self.depth.value = 1
        try:
            made = make()
        finally:
            self.depth.value = 0
        self._told_start(key, began)
        return made

    def _told_start(self, key: Hashable, began: float) -> None:
        left = key in self._unfinished
        self._unfinished.add(key)
        main, grad = threading.get_ident() == self._pulse.main, torch.is_grad_enabled()
        self._pulse.ask(Fetch(key, began, _now(), 0, main, grad, True, left))

    def _told(self, key: Hashable, began: float, samples: int) -> None:
        main, grad = threading.get_ident() == self._pulse.main, torch.is_grad_enabled()
        self._pulse.ask(Fetch(key, began, _now(), samples, main, grad))


def _ways(pulse: Pulse) -> tuple[set[Hashable], Tell, Tell, Tell]:
    """What fetches are a matter of course, and who takes those, those of other threads, others."""
    return pulse.ordinary, pulse.tell, pulse.tell_apart, pulse.ask


def _nobody(source: Source) -> None:
    """Nobody wants to know."""


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
