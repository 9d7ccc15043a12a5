"""Batches kept in memory, handed out again in the same order on each rung of a cycle.

Each cycle goes on where the last one ended, so that unlike batches all get their turn.

A script may change a batch in place (normalising on the device, mixing samples). Tensors tell of
that by their version counter: a changed one is put back from a pristine copy before it is handed
out again, so an unchanged one costs nothing. Anything that is not a tensor is copied each time.
"""

from __future__ import annotations

import copy
import functools
import itertools
import operator
from collections.abc import Callable, Hashable
from typing import Any

import torch

from sfbench.common.schema import Rung
from sfbench.probe.replaying.batch import elements_in, nbytes, samples_in, tensors
from sfbench.probe.replaying.memory import is_out_of_memory
from sfbench.probe.replaying.resize import SCALES, pinned, resized

LEAST_BYTES, MOST_BYTES = 2**26, 2**30
PART_OF_FREE = 0.02
"""Of the host's free memory, for all its ranks together."""
_FLAT = (torch.Tensor, int, float, str, bytes, bool, type(None))
version_of = operator.attrgetter("_version")
_RESIZED = 4


class _Entry:
    """One kept batch."""

    def __init__(self, batch: Any, samples: int) -> None:
        self.samples = samples
        self.elements = elements_in(batch)
        self._pristine = _clone(batch)
        self.renew()

    def renew(self) -> None:
        """Make anew what is handed out: the script has changed it in place."""
        served = _clone(self._pristine)
        self.tensors = [t for t in tensors(served) if not t.is_inference()]
        self.versions = tuple(map(version_of, self.tensors))
        self.make = _maker(served)
        """Makes the batch as the loader gave it."""

    def resized(self, rung: Rung) -> Any | None:
        """The pristine batch cut or joined; None if that cannot be."""
        return resized(self._pristine, samples_in(self._pristine), rung)


class Ring:
    """The kept batches of every training loader, at most ``size`` each."""

    def __init__(self, size: int = 32, most_bytes: int = MOST_BYTES) -> None:
        self.size = size
        self._most = most_bytes
        self._kept: dict[Hashable, list[_Entry]] = {}
        self._next: dict[Hashable, int] = {}
        self._start = 0
        self._bytes = 0
        self._refused = False
        """There was no room for one more batch."""
        self.lacks_memory = False
        """One could not be copied."""
        self.on_device = False
        """Batches lie on an accelerator: they take its memory."""
        self.serving: dict[Hashable, list[_Entry]] = {}
        """What is handed out of each loader just now: always the same dict."""
        self._resized: dict[tuple[Hashable, Rung], list[_Entry]] = {}
        self.unlike = False
        """Batches of one loader were seen to differ in length."""
        self.elements = 0
        """Numbers in the batch handed out last."""

    def keep(self, key: Hashable, batch: Any, samples: int) -> None:
        """Copy a batch, while there is room for one more of this loader."""
        kept = self._kept.setdefault(key, [])
        self.serving.setdefault(key, kept)
        size = nbytes(batch)
        if len(kept) < self.size and (not kept or self._bytes + 2 * size <= self._most):
            self._add(kept, batch, samples)
            self._bytes += 2 * size
        elif len(kept) < self.size:
            self._refused = True

    def _add(self, kept: list[_Entry], batch: Any, samples: int) -> None:
        try:
            entry = _Entry(batch, samples)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._refused = self.lacks_memory = True
            return
        kept.append(entry)
        self.unlike = self.unlike or entry.elements != kept[0].elements
        self.on_device = self.on_device or any(t.device.type != "cpu" for t in entry.tensors)

    @property
    def full(self) -> bool:
        """No loader's batches are taken any more."""
        return self._refused or (
            bool(self._kept) and all(len(kept) >= self.size for kept in self._kept.values())
        )

    def count(self, key: Hashable) -> int:
        """Batches kept of a loader."""
        return len(self._kept.get(key, ()))

    def rewind(self, rung: Rung = "cached", start: int = 0) -> None:
        """Begin again at batch ``start`` (counted around), in the size that a rung wants."""
        self._next.clear()
        self._start = start
        self.serving.update(self._kept)
        if rung in SCALES:
            self.resize(rung)  # nothing new, if that was asked before
            for key, kept in self._kept.items():
                self.serving[key] = self._resized.get((key, rung)) or kept

    def resize(self, rung: Rung) -> str | None:
        """Cut or join the batches for a rung; the reason if there is no memory for that."""
        try:
            for key, kept in self._kept.items():
                if (key, rung) not in self._resized:
                    self._resized[key, rung] = _resized_entries(kept, rung)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return f"no memory: batches for the rung {rung} could not be made"
        return None

    def can_resize(self) -> bool:
        """Whether kept batches can be cut or joined; what cannot is handed out as it is."""
        kept = [entry for entries in self._kept.values() for entry in entries]
        return any(e.resized(rung) is not None for e in kept[:1] for rung in SCALES)

    def take(self, key: Hashable) -> tuple[Any, int]:
        """The next batch of a loader and its samples. In every step: without a further call."""
        kept = self.serving[key]
        place = self._next.get(key, self._start)
        self._next[key] = place + 1
        entry = kept[place % len(kept)]
        if tuple(map(version_of, entry.tensors)) != entry.versions:
            entry.renew()
        self.elements = entry.elements
        return entry.make(), entry.samples


def ring_bytes(free: int, ranks: int) -> int:
    """What a rank's ring may hold, on a host with so much free memory and so many ranks."""
    return int(min(MOST_BYTES, max(LEAST_BYTES, PART_OF_FREE * free / ranks)))


def _resized_entries(kept: list[_Entry], rung: Rung) -> list[_Entry]:
    """A few are enough: their sizes are what counts."""
    entries = []
    for entry in kept[:_RESIZED]:
        batch = entry.resized(rung)
        if batch is not None:
            entries.append(_Entry(batch, round(entry.samples * SCALES[rung])))
    return entries


def _clone(value: Any) -> Any:
    """A deep copy that keeps tensors pinned where they were."""
    if isinstance(value, torch.Tensor):
        twin = value.detach().clone()
        return twin.pin_memory() if pinned(value) else twin
    return _mapped(value, _clone)


def _rebuild(value: Any) -> Any:
    """New containers around the same tensors, so that the script may change the containers."""
    return value if isinstance(value, torch.Tensor) else _mapped(value, _rebuild)


def _mapped(value: Any, change: Any) -> Any:
    if type(value) is dict:
        return {k: change(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(change(v) for v in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(change(v) for v in value))
    return _mapped_object(value, change)


def _mapped_object(value: Any, change: Any) -> Any:
    """A twin of any other object, as it copies itself; only its tensors are changed as told."""
    if isinstance(value, int | float | str | bytes | bool | type) or value is None:
        return value
    memo = {id(tensor): change(tensor) for tensor in tensors(value)}
    try:
        return copy.deepcopy(value, memo)
    except (
        Exception
    ):  # what a script puts into a batch need not be made to be copied (locks, files)
        return value


def _maker(served: Any) -> Callable[[], Any]:
    """Makes new containers around the same tensors, of the usual kinds without a Python call."""
    if isinstance(served, torch.Tensor):
        return itertools.repeat(served).__next__
    parts = list(served.values()) if type(served) is dict else served
    if type(served) not in (dict, list, tuple) or not all(isinstance(p, _FLAT) for p in parts):
        return functools.partial(_rebuild, served)
    return itertools.repeat(served).__next__ if type(served) is tuple else served.copy
