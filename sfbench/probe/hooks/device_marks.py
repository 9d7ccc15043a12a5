"""Marks of a device inside steps: its forwards and updates, and waits that it was busy through.

What the host sees of these is when it launched them. Phases are marked only while ``phases`` is
set, in steps that pass unmeasured, so that no measured step carries a mark of theirs. A wait for
batches is marked where it is long enough to matter: the device may have had work until its end.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from sfbench.probe.clock import Clock, elapsed_s
from sfbench.probe.hooks.pulse import Pulse
from sfbench.probe.hooks.taps import Taps, uncompiled
from sfbench.probe.loop.flow import Flow
from sfbench.protocol.feeding import Batches

WORTH_A_MARK_S = 50e-6
"""Shorter waits count as the host saw them."""
_FORWARD, _UPDATE = range(2)
_now = time.perf_counter


class Inside(NamedTuple):
    """What the device did in one step."""

    forward_s: float = math.nan
    update_s: float = math.nan
    hidden_s: float = 0.0
    """Of the waits for batches, what the device was busy through."""


class _Wait(NamedTuple):
    seconds: float
    before: Any
    """None: the step began with it."""
    after: Any


class DeviceMarks:
    """Only on accelerators. Steps are told by how many had ended before."""

    def __init__(self, pulse: Pulse, clock: Clock, flow: Flow) -> None:
        self._pulse = pulse
        self._clock = clock
        self._flow = flow
        self.phases = False
        self._spans: dict[int, list[tuple[int, Any, Any]]] = {}
        self._waits: dict[int, list[_Wait]] = {}
        self._mixed: set[int] = set()
        """Steps with a forward inside an update: a closure."""
        self._update_began: Any = None
        self._fetched = -1
        """The step in which the last batch was fetched."""
        self._waiting = False
        self._handles: list[Any] = []

    def install(self, taps: Taps) -> None:
        """Before all other hooks: innermost around what they see, and first after an update."""
        taps.wrap(DistributedDataParallel, "forward", self._around_forward)
        for owner in (_BaseDataLoaderIter, Batches):
            taps.wrap(owner, "__next__", self._around_wait)
        taps.wrap(DataLoader, "__iter__", self._around_wait)
        self._handles = [
            torch_optimizer.register_optimizer_step_pre_hook(self._before_update()),
            torch_optimizer.register_optimizer_step_post_hook(self._after_update()),
        ]

    def remove(self) -> None:
        """Take torch's global hooks away."""
        while self._handles:
            self._handles.pop().remove()

    def begin(self) -> None:
        """Nothing of what was marked so far belongs to the steps that come."""
        self._spans.clear()
        self._waits.clear()
        self._mixed.clear()
        self._update_began, self._fetched = None, -1

    def inside(self, step: int, began: Any) -> Inside:
        """What the device did in a step that began at a mark. Only after it was waited for."""
        spans = [] if step in self._mixed else self._spans.get(step, [])
        waits = self._waits.get(step, ())
        return Inside(
            _total(spans, _FORWARD),
            _total(spans, _UPDATE),
            sum(w.seconds - min(w.seconds, elapsed_s(w.before or began, w.after)) for w in waits),
        )

    def _trains(self) -> bool:
        return self._clock.accelerator is not None and threading.get_ident() == self._pulse.main

    def _around_forward(self, original: Any) -> Any:
        clock = self._clock

        def forward(model: Any, /, *inputs: Any, **kwargs: Any) -> Any:
            if not (self.phases and torch.is_grad_enabled() and self._trains()) or _captures(clock):
                return original(model, *inputs, **kwargs)
            step, before = self._flow.ended, self._clock.mark()
            if self._update_began is not None:
                self._mixed.add(step)
            output = original(model, *inputs, **kwargs)
            self._spans.setdefault(step, []).append((_FORWARD, before, self._clock.mark()))
            return output

        return forward

    def _before_update(self) -> Any:
        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if self.phases and self._update_began is None and self._trains():
                self._update_began = self._clock.mark()

        return uncompiled(before)

    def _after_update(self) -> Any:
        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            began, self._update_began = self._update_began, None
            if began is not None and self._trains():
                span = (_UPDATE, began, self._clock.mark())
                self._spans.setdefault(self._flow.ended, []).append(span)

        return uncompiled(after)

    def _around_wait(self, original: Any) -> Any:
        def waited(thing: Any) -> Any:
            if self._waiting or not self._trains():
                return original(thing)
            step, mark = self._flow.ended, self._clock.mark
            # Within accumulation there is work before it that is not the last step's.
            before = mark() if step == self._fetched else None
            began, self._waiting, self._fetched = _now(), True, step
            try:
                return original(thing)
            finally:
                self._waiting = False
                seconds = _now() - began
                if seconds > WORTH_A_MARK_S:
                    self._waits.setdefault(step, []).append(_Wait(seconds, before, mark()))

        return waited


def _captures(clock: Clock) -> bool:
    """Whether a graph is being made, which could not hold a mark."""
    return clock.accelerator is not None and clock.accelerator.capturing()


def _total(spans: list[tuple[int, Any, Any]], kind: int) -> float:
    times = [elapsed_s(before, after) for found, before, after in spans if found == kind]
    return sum(times) if times else math.nan
