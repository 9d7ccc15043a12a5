"""What each DataLoader gave this rank: order, samples, number of batches, how its passes end."""

from __future__ import annotations

import dataclasses
import threading
import zlib
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
from torch.utils.data.dataloader import _BaseDataLoaderIter

from sfbench.probe.hooks.loader_hooks import LoaderHooks
from sfbench.probe.hooks.passes import Source
from sfbench.probe.hooks.taps import Listener, Taps
from sfbench.probe.recording.call_site import CallSite, caller, calls_by_for
from sfbench.probe.recording.content import batch_prints, dataset_digest
from sfbench.probe.replaying.batch import samples_in
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

    source: Source
    busy: bool = True
    """Its samples are wanted."""
    ended: bool = False
    shortened: bool = False
    cycled: bool = False

    @property
    def batches(self) -> int:
        """Handed out so far."""
        return self.source.batches

    def numbers(self) -> list[int]:
        """The indices of the last batch; empty if they are not known."""
        place = self.source.batches + self.source.drained - 1
        return _numbers(self.source.order[place]) if place < len(self.source.order) else []


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
    """Sees what loaders hand out, closely as long as the window of the checks is open.

    ``real`` tells whether loaders load just now; ``trains`` whether a loader's batches are trained
    on, as far as is known.
    """

    def __init__(
        self,
        call_site: CallSite,
        hooks: LoaderHooks,
        real: Callable[[], bool],
        trains: Callable[[Hashable], bool],
        world_size: int = 1,
    ) -> None:
        self._call_site = call_site
        self._hooks = hooks
        self._samples = max(FEWEST_SAMPLES, min(SAMPLES, OF_ALL_RANKS // world_size))
        self._real = real
        self._trains = trains
        self._main = threading.get_ident()
        self._taps: Taps | None = None
        self._listener: Listener | None = None
        self._sources: Listener | None = None
        self._closed = False
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

    def install(self, taps: Taps) -> None:
        """Patch the constructor of DataLoader, and listen to batches."""
        self._taps = taps
        taps.wrap(DataLoader, "__init__", self._around_init)
        self._hooks.on_pass, self._hooks.on_first, self._hooks.on_end = (
            self._made, self._begin, self._end,
        )  # fmt: skip
        self._sources = taps.wrap(Batches, "__next__", self._around_source_next)
        self._listen()

    def close(self) -> None:
        """Enough was seen: from here on only how passes begin and end."""
        self._closed = True
        for listener in (self._listener, self._sources):
            if listener is not None:
                listener.leave()
        self._listener = self._sources = None

    def _listen(self) -> None:
        if self._listener is None and self._taps is not None:
            self._listener = self._taps.wrap(_BaseDataLoaderIter, "__next__", self._around_next)

    def loaders(self) -> tuple[Loader, ...]:
        """All loaders that gave at least one batch, in the order of their first pass.

        If there was none: what the model was given.
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
            self._lines[id(loader)] = self._call_site.line()
            original(loader, *args, **kwargs)

        return init

    def _around_source_next(self, original: Any) -> Any:
        def next_batch(source: Any) -> Any:
            batch = original(source)
            if self.wants_inputs and self._real():
                self.given(batch, self._call_site.line())
            return batch

        return next_batch

    def _around_next(self, original: Any) -> Any:
        def next_batch(iterator: Any) -> Any:
            source = self._hooks.sources.get(iterator)
            if source is None or source.watch is None or not self._real():
                return original(iterator)
            return self._watched(original, iterator, source.watch)

        return next_batch

    def _watched(self, original: Any, iterator: Any, now: _Pass) -> Any:
        """The next batch, if more than its number is of interest."""
        if self._ends_here(now):
            frame = caller()
            if calls_by_for(frame):
                now.shortened = self.shortened = True
                self._last_loop = _loop(frame)
                raise StopIteration
        batch = original(iterator)
        trains = self._trains(now.source.key) and torch.is_grad_enabled()
        if self.ended is not None and trains:
            self.ended = None
            if self._closed:
                self.close()
        if now.busy and not self._closed:
            now.busy = self._note(self._seen.get(now.source.key), now, batch)
            if not now.busy:
                self._enough(now)
        return batch

    def _ends_here(self, now: _Pass) -> bool:
        if not (self.end_now or self.shortens) or threading.get_ident() != self._main:
            return False
        grad = torch.is_grad_enabled()
        if self.end_now and grad and self._trains(now.source.key):
            self.end_now = False
            return now.batches > 0
        return self.shortens and not grad and now.batches >= ASIDE_BATCHES

    # -- notes -----------------------------------------------------------------------------------

    def _made(self, source: Source) -> None:
        """A pass is made: so many of its indices are of interest."""
        passes = self._known.get(id(source.loader.dataset), 0 if self._closed else None)
        source.room = self._samples if passes is None else ORDER if passes < EPOCHS else 0
        source.watch = _Pass(source, busy=source.room > 0)

    def _enough(self, now: _Pass) -> None:
        dataset = id(now.source.loader.dataset)
        self._known[dataset] = self._known.get(dataset, 0) + 1

    def _begin(self, source: Source) -> None:
        """Before the first batch of a pass."""
        now: _Pass | None = source.watch
        if now is None or not self._real():
            return
        loop, self._last_loop = self._last_loop, None
        now.cycled = loop is not None and loop is _loop(caller())
        if source.key not in self._seen:
            line = self._lines.get(id(source.loader), "")
            self._seen[source.key] = _Seen(_facts(source.loader, line))
        passes = self._seen[source.key].passes
        if len(passes) < EPOCHS and now not in passes:
            passes.append(now)
        if self._closed:
            self._enough(now)

    def _end(self, source: Source) -> None:
        """A pass has come to its end."""
        now: _Pass | None = source.watch
        if now is None or not self._real():
            return
        now.ended = True
        main = threading.get_ident() == self._main
        if main and torch.is_grad_enabled() and self._trains(source.key):
            self.ended = now
            self._last_loop = _loop(caller())
            self._listen()

    def _note(self, seen: _Seen | None, now: _Pass, batch: Any) -> bool:
        """Keep checksums of the first pass that comes to a second batch.

        Returns whether more of this pass are wanted.
        """
        numbers = now.numbers()
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


def _numbers(index: Any) -> list[int]:
    return [_number(i) for i in (index if isinstance(index, list | tuple) else [index])]


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
                order=tuple(n for index in p.source.order for n in _numbers(index))[:ORDER],
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
