"""The script's own collectives: counted, and answered locally while ranks run apart.

In the ``unsynced`` and ``solo`` rungs ranks do not meet, so a collective would wait for ever. There
all_reduce leaves its input, all_gather copies it to every place, a barrier returns at once, what is
sent goes nowhere, what is received stays as it was, and ``async_op=True`` gets a finished work
handle. A test reads torch's own sources for what they call.
"""

from __future__ import annotations

import inspect
import statistics
import time
from collections.abc import Callable, MutableSequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from sfbench.common.schema import OwnCollective
from sfbench.probe.hooks import functional
from sfbench.probe.hooks.events import Event, Met
from sfbench.probe.hooks.taps import Listener, Taps

_IN_PLACE = (
    "all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "barrier", "monitored_barrier",
    "broadcast_object_list",
)  # fmt: skip
_OBJECTS = ("all_gather_object", "gather_object", "scatter_object_list")
_TENSORS = (
    "all_gather", "all_gather_single", "all_gather_into_tensor", "_all_gather_base",
    "all_gather_coalesced", "gather", "scatter", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor", "_reduce_scatter_base", "all_to_all", "all_to_all_single",
)  # fmt: skip
_BACKWARDS = ("gather", "gather_object")
"""These name what goes in before what comes out."""
COLLECTIVES = (*_IN_PLACE, *_OBJECTS, *_TENSORS)
"""Functions of ``torch.distributed`` in which ranks meet."""
PAIRWISE = ("send", "recv", "isend", "irecv", "batch_isend_irecv")
"""Functions of ``torch.distributed`` in which two ranks meet. All of them go through the methods
below of a group; ``P2POp`` compares functions by identity, so they stay as they are."""
_PAIRWISE_METHODS = ("send", "recv", "recv_anysource")
GROUP_METHODS = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "barrier", "monitored_barrier",
    "allgather", "_allgather_base", "all_gather_single", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "all_gather_single_coalesced", "gather", "scatter",
    "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced", "alltoall",
    "alltoall_base", "all_to_all_single",
)  # fmt: skip
"""Methods of a group in which its ranks meet: what a script calls past the functions above. All but
those that work in place are given first what comes out, then what goes in."""
_METHODS_IN_PLACE = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "barrier", "monitored_barrier",
)  # fmt: skip

_now = time.perf_counter
_new: Any = tuple.__new__
"""Makes a named tuple without a Python call."""

EVERY_STEP = 0.5
"""Collectives that come less often per step are the set-up's, or come now and then."""


class CollectiveHooks:
    """Stands in for the functions of ``torch.distributed`` that make ranks meet."""

    def __init__(
        self,
        line: Callable[[], str] = str,
        told: MutableSequence[Event] | None = None,
        trains: Callable[[], bool] = lambda: True,
    ) -> None:
        """``line`` tells the script's line that runs, ``told`` takes when ranks have met, and
        ``trains`` tells whether an update is behind it."""
        self._told = told
        self.local = False
        """While true, nothing is sent."""
        self.bytes_sent = 0
        """As long as it listens."""
        self.listens = True
        """Calls are told apart by their line: until the first block."""
        self._line = line
        self._inside = False
        self._taps = Taps()
        self._methods: list[Listener] = []
        self._trains = trains
        self._seen: dict[tuple[str, str], list[float]] = {}
        self._bytes: dict[tuple[str, str], int] = {}

    def install(self, taps: Taps) -> None:
        """Patch the collectives, and what a group sends from one rank to another."""
        self._taps = taps
        for name in COLLECTIVES:
            # Where they are defined as well: some call them by that name.
            for owner in (dist, c10d):
                if hasattr(owner, name):
                    taps.wrap(owner, name, self._around(name))
        for name in _PAIRWISE_METHODS:
            taps.wrap(dist.ProcessGroup, name, self._around_pairwise)
        functional.install(taps, self)

    def run_apart(self, on: bool) -> None:
        """Ranks part, or meet again. Methods of a group are patched only as long as they are apart:
        all that is above calls them."""
        self.local = on
        if on and not self._methods:
            group = dist.ProcessGroup
            self._methods = [
                self._taps.wrap(group, name, partial(self._around_method, name))
                for name in GROUP_METHODS
                if hasattr(group, name)
            ]
        elif not on:
            while self._methods:
                self._methods.pop().leave()

    def _around(self, name: str) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            signature, told = inspect.signature(original), self._told

            def collective(*args: Any, **kwargs: Any) -> Any:
                # Scripts keep what they import: this asks at each call, and is never exchanged.
                if self.local:
                    return _local(name, signature.bind(*args, **kwargs))
                if self._inside:  # one is made of others
                    return original(*args, **kwargs)
                self._inside, began = True, _now()
                try:
                    answer = original(*args, **kwargs)
                finally:
                    self._inside = False
                ended = _now()
                if told is not None:
                    told.append(_new(Met, (began, ended)))
                if self.listens:
                    sent = nbytes_of(args, kwargs)
                    self.bytes_sent += sent
                    if self._trains():
                        self._note((name, self._line()), ended - began, sent)
                return answer

            return collective

        return make

    def _around_method(self, name: str, original: Any) -> Any:
        def method(group: Any, *args: Any, **kwargs: Any) -> Any:
            if name not in _METHODS_IN_PLACE:
                target, source = (*args, *kwargs.values())[:2]
                _give(target, source)
            return Done()

        return method

    def _note(self, place: tuple[str, str], seconds: float, sent: int) -> None:
        self._seen.setdefault(place, []).append(seconds)
        self._bytes[place] = sent

    def per_step(self, steps: int) -> tuple[OwnCollective, ...]:
        """Those that came in half of so many steps at least, dearest first.

        Listened was from the end of the first update to the end of the last: a step less than
        there were, whether they come before an update or after it.
        """
        steps = max(1, steps - 1)
        found = [
            OwnCollective(
                name=name,
                line=line,
                calls_per_step=len(seconds) / steps,
                seconds=statistics.fmean(seconds),
                bytes=self._bytes[name, line],
            )
            for (name, line), seconds in self._seen.items()
            if len(seconds) >= EVERY_STEP * steps
        ]
        return tuple(sorted(found, key=lambda one: -one.calls_per_step * one.seconds))

    def _around_pairwise(self, original: Any) -> Any:
        def pairwise(group: Any, *args: Any, **kwargs: Any) -> Any:
            return Done() if self.local else original(group, *args, **kwargs)

        return pairwise


def nbytes_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Bytes of the tensors among a collective's arguments."""
    nbytes = 0
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            nbytes += value.numel() * value.element_size()
    return nbytes


class Done:
    """A work handle of something already finished."""

    def wait(self, timeout: Any = None) -> bool:
        """At once."""
        return True

    def is_completed(self) -> bool:
        """It is."""
        return True

    def is_success(self) -> bool:
        """It is."""
        return True

    def get_future(self) -> Any:
        """One that is set."""
        future: Any = torch.futures.Future()
        future.set_result(None)
        return future

    def _source_rank(self) -> int:
        return 0


def _local(name: str, bound: inspect.BoundArguments) -> Any:
    if name not in _IN_PLACE:
        first, second = list(bound.arguments.values())[:2]
        target, source = (second, first) if name in _BACKWARDS else (first, second)
        if target is None or source is None:
            pass  # of all ranks only one gets or gives something, and this is not it
        elif name in _OBJECTS:
            given = source[0] if name == "scatter_object_list" else source
            target[:] = [given] * len(target)
        else:
            _give(target, source)
    return Done() if bound.arguments.get("async_op") else None


def _give(target: Any, source: Any) -> None:
    """Every place of the target gets what this rank has: its part by place, or all of it."""
    if isinstance(target, torch.Tensor):
        _fill(target, source if isinstance(source, torch.Tensor) else source[0])
        return
    if not isinstance(source, torch.Tensor) and not len(source):
        return  # another rank gives
    for place, inner in enumerate(target):
        whole = isinstance(source, torch.Tensor)
        _give(inner, source if whole else source[place % len(source)])


def _fill(target: torch.Tensor, source: torch.Tensor) -> None:
    """Repeat or cut the source to the length of the target."""
    flat, have = target.reshape(-1), source.reshape(-1)
    with torch.no_grad():
        for start in range(0, flat.numel(), max(1, have.numel())):
            part = flat[start : start + have.numel()]
            part.copy_(have[: part.numel()])
        if flat.data_ptr() != target.data_ptr():
            target.copy_(flat.view_as(target))
