"""What each DataLoader gave this rank: order, samples, number of batches, how its passes end."""

from __future__ import annotations

import dataclasses
import sys
import threading
import zlib
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind

from sfbench.probe.batch import samples_in
from sfbench.probe.loader_hooks import Source
from sfbench.probe.patches import Patches
from sfbench.probe.recording.call_site import Place, calls_by_for
from sfbench.probe.recording.content import batch_prints, dataset_digest
from sfbench.probe.weak import WeakTable
from sfbench.protocol.evidence import Epoch, Loader
from sfbench.protocol.feeding import Batches

SAMPLES = 1024
"""Samples of a first pass that are kept in mind per loader; fewer on each of many ranks."""
FEWEST_SAMPLES = 128
OF_ALL_RANKS = 16 * SAMPLES
ORDER = 64
EPOCHS = 12
ASIDE_BATCHES = 4
"""In a check, batches after which loops that do not train are ended."""
_GENERATOR = 0x20


@dataclass(slots=True)
class _Pass:
    """One pass, while it lasts."""

    limit: int
    """How many indices are noted."""
    order: list[int] = field(default_factory=list)
    waiting: deque[list[int]] = field(default_factory=deque)
    """Indices of batches that are under way."""
    listens: bool = True
    """For indices."""
    busy: bool = True
    """It has not begun, or its samples are wanted."""
    key: Hashable = None
    batches: int = 0
    ended: bool = False
    shortened: bool = False
    cycled: bool = False

    def given_out(self, index: Any) -> None:
        """The sampler has given out the indices of a batch."""
        numbers = [_number(i) for i in (index if isinstance(index, list | tuple) else [index])]
        self.order.extend(numbers)
        self.waiting.append(numbers)
        self.listens = len(self.order) < self.limit


@dataclass(slots=True)
class _Seen:
    """A loader and what it gave."""

    facts: Loader
    passes: list[_Pass] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    contents: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    whole: bool = False
    sampled: _Pass | None = None


class LoaderWatch:
    """Wraps DataLoader and its iterators.

    ``sources`` tells which loader an iterator belongs to; ``real`` whether loaders load just now;
    ``trains`` whether a loader's batches are trained on, as far as is known.
    """

    def __init__(
        self,
        place: Place,
        sources: WeakTable[Source],
        real: Callable[[], bool],
        trains: Callable[[Hashable], bool],
        world_size: int = 1,
    ) -> None:
        self._place = place
        self._samples = max(FEWEST_SAMPLES, min(SAMPLES, OF_ALL_RANKS // world_size))
        self._real = real
        self._trains = trains
        self._main = threading.get_ident()
        self._sources = sources
        self._passes: WeakTable[_Pass] = WeakTable()
        self._lines: dict[int, str] = {}
        self._last_loop: Any = None
        """The loop in which the pass before has ended: see ``_loop``."""
        self._seen: dict[Hashable, _Seen] = {}
        self._known: dict[int, int] = {}
        """Datasets of whose samples enough has been seen, with their passes since then."""
        self._inputs: Loader | None = None
        self.ended: _Pass | None = None
        """The training pass that ended by itself, until the next batch to train on."""
        self.shortens = False
        """Loops that do not train are ended after a few batches."""
        self.end_now = False
        """The training pass that is under way ends before its next batch."""
        self.shortened = False
        """The probe has ended some loop."""

    def install(self, patches: Patches) -> None:
        """Patch the constructor of DataLoader and its iterators."""
        patches.wrap(DataLoader, "__init__", self._around_init)
        patches.wrap(_BaseDataLoaderIter, "__init__", self._around_new_pass)
        patches.wrap(_BaseDataLoaderIter, "_reset", self._around_new_pass)
        patches.wrap(_BaseDataLoaderIter, "_next_index", self._around_next_index)
        patches.wrap(_BaseDataLoaderIter, "__next__", self._around_next)
        patches.wrap(Batches, "__next__", self._around_source_next)

    def loaders(self) -> tuple[Loader, ...]:
        """All loaders that gave at least one batch, in the order of their first pass.

        Where there was none: what the model was given.
        """
        found = tuple(_loader(seen, self._trains(key)) for key, seen in self._seen.items())
        return found or ((self._inputs,) if self._inputs is not None else ())

    @property
    def wants_inputs(self) -> bool:
        """No loader was seen, and too few samples from elsewhere."""
        return not self._seen and (
            self._inputs is None or len(self._inputs.contents) < self._samples
        )

    def given(self, batch: Any, line: str) -> None:
        """A batch that came from elsewhere: without a loader, it tells the samples."""
        if self.wants_inputs:
            before = self._inputs or _unloaded(line)
            prints = batch_prints(batch, samples_in(batch))
            self._inputs = dataclasses.replace(
                before,
                contents=before.contents + tuple(prints.contents),
                labels=before.labels + tuple(prints.labels),
                whole_batches=prints.whole,
            )

    def passes(self) -> tuple[int, int]:
        """Passes begun over the training loader with most of them; how many ended by themselves."""
        counts = [
            (len(seen.passes), sum(p.ended for p in seen.passes))
            for key, seen in self._seen.items()
            if self._trains(key)
        ]
        return max(counts, default=(0, 0))

    # -- hooks -----------------------------------------------------------------------------------

    def _around_init(self, original: Any) -> Any:
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            self._lines[id(loader)] = self._place.line()
            original(loader, *args, **kwargs)

        return init

    def _around_source_next(self, original: Any) -> Any:
        def next_batch(source: Any) -> Any:
            batch = original(source)
            if self.wants_inputs and self._real():
                self.given(batch, self._place.line())
            return batch

        return next_batch

    def _around_new_pass(self, original: Any) -> Any:
        """Where an iterator is made, and where a lasting one begins again."""

        def begin(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> Any:
            passes = self._known.get(id(loader.dataset))
            limit = self._samples if passes is None else ORDER if passes < EPOCHS else 0
            self._passes.put(iterator, _Pass(limit=limit, listens=limit > 0, busy=limit > 0))
            return original(iterator, loader, *args, **kwargs)

        return begin

    def _around_next(self, original: Any) -> Any:
        def next_batch(iterator: Any) -> Any:
            now = self._passes.get(iterator)
            if now is None or not self._real():
                return original(iterator)
            if now.busy or self.shortens or self.end_now or self.ended is not None:
                return self._watched(original, iterator, now, sys._getframe(1))
            try:
                batch = original(iterator)
            except StopIteration:
                self._end(iterator, now, sys._getframe(1))
                raise
            now.batches += 1
            return batch

        return next_batch

    def _around_next_index(self, original: Any) -> Any:
        def next_index(iterator: Any) -> Any:
            index = original(iterator)
            now = self._passes.get(iterator)
            if now is not None and now.listens:
                now.listens = iterator._dataset_kind == _DatasetKind.Map
                if now.listens:
                    now.given_out(index)
            return index

        return next_index

    def _watched(self, original: Any, iterator: Any, now: _Pass, frame: Any) -> Any:
        """The next batch, where more than its number is of interest."""
        if now.batches == 0:
            self._begin(iterator, now, frame)
        if self._ends_here(now) and calls_by_for(frame):
            now.shortened = self.shortened = True
            self._last_loop = _loop(frame)
            raise StopIteration
        try:
            batch = original(iterator)
        except StopIteration:
            self._end(iterator, now, frame)
            raise
        if self.ended is not None and self._trains(now.key) and torch.is_grad_enabled():
            self.ended = None
        now.batches += 1
        now.busy = self._note(self._seen.get(now.key), now, batch)
        source = self._sources.get(iterator)
        if not now.busy and source is not None and source.loader is not None:
            dataset = id(source.loader.dataset)
            self._known[dataset] = self._known.get(dataset, 0) + 1
        return batch

    def _ends_here(self, now: _Pass) -> bool:
        if not (self.end_now or self.shortens) or threading.get_ident() != self._main:
            return False
        grad = torch.is_grad_enabled()
        if self.end_now and grad and self._trains(now.key):
            self.end_now = False
            return now.batches > 0
        return self.shortens and not grad and now.batches >= ASIDE_BATCHES

    # -- notes -----------------------------------------------------------------------------------

    def _begin(self, iterator: Any, now: _Pass, frame: Any) -> None:
        loop, self._last_loop = self._last_loop, None
        now.cycled = loop is not None and loop is _loop(frame)
        source = self._sources.get(iterator)
        if source is not None and source.loader is not None:
            now.key = key = source.key
            if key not in self._seen:
                line = self._lines.get(id(source.loader), "")
                self._seen[key] = _Seen(_facts(source.loader, line))
            if len(self._seen[key].passes) < EPOCHS:
                self._seen[key].passes.append(now)

    def _end(self, iterator: Any, now: _Pass, frame: Any) -> None:
        now.ended = True
        main = threading.get_ident() == self._main
        source = self._sources.get(iterator)
        trains = source is not None and self._trains(source.key)
        if main and trains and torch.is_grad_enabled():
            self.ended = now
            self._last_loop = _loop(frame)

    def _note(self, seen: _Seen | None, now: _Pass, batch: Any) -> bool:
        """Keep checksums of the first pass that comes to a second batch.

        Returns whether more of this pass are wanted.
        """
        numbers = now.waiting.popleft() if now.waiting else []
        if seen is None or len(seen.contents) >= self._samples:
            return False
        if seen.sampled is not now:
            if seen.sampled is not None and seen.sampled.batches > 1:
                return False
            seen.sampled = now
            for kept in (seen.indices, seen.contents, seen.labels):
                kept.clear()
        prints = batch_prints(batch, len(numbers) or samples_in(batch))
        seen.whole = prints.whole
        seen.indices += [_number(tuple(numbers))] if prints.whole and numbers else numbers
        seen.contents += prints.contents
        seen.labels += prints.labels
        return True


def _loop(frame: Any) -> Any:
    """What may begin one pass after the other without ever ending: a generator, or next().

    A generator that has ended is no danger to keep: its variables are gone.
    """
    if not calls_by_for(frame):
        return "next"
    return frame if frame.f_code.co_flags & _GENERATOR else None


def _number(index: Any) -> int:
    try:
        return int(index)
    except (TypeError, ValueError):
        return zlib.crc32(repr(index).encode())


def _unloaded(line: str) -> Loader:
    """Stands for batches that come from the script's own code."""
    return Loader(
        line=line,
        trains=True,
        length=None,
        dataset="",
        dataset_size=None,
        dataset_digest=0,
        sampler="",
        takes_all=False,
        shuffles=None,
        has_set_epoch=False,
    )


def _facts(loader: Any, line: str) -> Loader:
    dataset, sampler = loader.dataset, loader.sampler
    batch_sampler = loader.batch_sampler
    if type(batch_sampler) is not BatchSampler and batch_sampler is not None:
        sampler = batch_sampler
    inner = getattr(batch_sampler, "sampler", None)
    return Loader(
        line=line,
        trains=False,
        length=_length(loader),
        dataset=type(dataset).__name__,
        dataset_size=_length(dataset),
        dataset_digest=dataset_digest(dataset),
        sampler=type(sampler).__name__,
        takes_all=_takes_all(sampler),
        shuffles=_shuffles(sampler),
        has_set_epoch=any(hasattr(s, "set_epoch") for s in (sampler, batch_sampler, inner)),
    )


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except (TypeError, NotImplementedError, AttributeError):
        # Streams have no length, and wrappers pass len() on to what may have none: torch's own
        # samplers and loaders raise each of these. A length that is not known is None, never 0.
        return None


def _takes_all(sampler: Any) -> bool:
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples >= (
            _length(sampler.data_source) or 0
        )
    return type(sampler) is SequentialSampler


def _shuffles(sampler: Any) -> bool | None:
    if isinstance(sampler, DistributedSampler):
        return bool(sampler.shuffle)
    if type(sampler) in {RandomSampler, SequentialSampler}:
        return type(sampler) is RandomSampler
    return None


def _loader(seen: _Seen, trains: bool) -> Loader:
    return dataclasses.replace(
        seen.facts,
        trains=trains,
        epochs=tuple(
            Epoch(
                order=tuple(p.order[:ORDER]),
                batches=p.batches,
                ended=p.ended,
                shortened=p.shortened,
                cycled=p.cycled,
            )
            for p in seen.passes
        ),
        indices=tuple(seen.indices[:SAMPLES]),
        contents=tuple(seen.contents[:SAMPLES]),
        labels=tuple(seen.labels[:SAMPLES]),
        whole_batches=seen.whole,
    )
