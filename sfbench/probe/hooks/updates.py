"""Hooks on optimizers and gradient scalers: when an update has finished."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer
from torch.optim.optimizer import Optimizer

from sfbench.probe.clock import Clock
from sfbench.probe.device import parameters_of
from sfbench.probe.hooks.events import Update
from sfbench.probe.hooks.pulse import Pulse
from sfbench.probe.hooks.taps import Taps, uncompiled
from sfbench.probe.loop.flow import UPDATES_ASTRAY, Flow
from sfbench.protocol.heartbeat import IN_STEP, JOINED, STEPS

SKIPS_KEPT = 400
_now = time.perf_counter
_new: Any = tuple.__new__
"""Makes a named tuple without a Python call."""


class UpdateHooks:
    """Tells an Update after each optimizer step, also after one that a scaler skipped."""

    def __init__(self, pulse: Pulse, flow: Flow, clock: Clock, due: Callable[[], None]) -> None:
        """``due`` is called where the steps have been made that ``left`` counts down."""
        self._pulse = pulse
        self._flow = flow
        self._clock = clock
        self._due = due
        self.left = [0]
        """Steps until ``due``: one cell."""
        self.heard: Callable[[Any], None] | None = None
        """One more who wants to know of each update, before it is told."""
        self._in_scaler = False
        self._stepped = False
        self._mark_of: Any = None
        """Of an update in another thread that is told just now."""
        self._before: Any = None
        self._after: Any = None
        self._tell: Callable[[Any], None] = _not_yet
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.scalers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.taken_over: Callable[[Any], None] = lambda optimizer: None
        """Hears of an optimizer that was made after the loop was known, before it takes over."""
        self.by_key: dict[int, Optimizer] = {}
        """Those in use: when the script goes on with new ones, the others are let go."""
        self._made: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._makes = 0
        self._settled: int | None = None
        self.scaled = 0
        self.skips: list[int] = []
        """Which of the scaled updates were skipped, counted from 0; the first few hundred."""

    @property
    def made_since(self) -> bool:
        """Whether an optimizer was made since things were settled."""
        return self._settled is not None and self._makes > self._settled

    @property
    def count(self) -> int:
        """Optimizers that the script has made."""
        return len(self.optimizers)

    def install(self, taps: Taps) -> None:
        """Register torch's global hooks and patch the scaler and the constructors."""
        self._before = torch_optimizer.register_optimizer_step_pre_hook(_nothing)
        self._after = torch_optimizer.register_optimizer_step_post_hook(_nothing)
        self._pulse.backward_over = self.backward_over
        taps.wrap(Optimizer, "__init__", self._around_init)
        taps.wrap(torch.amp.GradScaler, "step", self._around_scaler_step)
        self.connect()

    def backward_over(self) -> None:
        """Tell of updates that were made by hooks inside backward: autograd runs them in a thread
        of the device, while the thread that trains waits."""
        while self._pulse.stepped_elsewhere:
            optimizer, self._mark_of = self._pulse.stepped_elsewhere.pop(0)
            self._pulse.stepping = True
            self._tell(optimizer)

    def _marked(self) -> Any:
        mark, self._mark_of = self._mark_of, None
        return self._clock.mark() if mark is None else mark

    def settle(self) -> None:
        """The loop is known, or it is over: updates of optimizers made from here on are late."""
        self._settled = self._makes

    def connect(self) -> None:
        """Make the hooks anew from what the pulse says now.

        torch may be going through them just now: they are exchanged where they stand.
        """
        if self._before is not None:
            torch_optimizer._global_optimizer_pre_hooks[self._before.id] = self._before_step()
            torch_optimizer._global_optimizer_post_hooks[self._after.id] = self._after_step()

    def remove(self) -> None:
        """Take the global hooks away."""
        for handle in (self._before, self._after):
            if handle is not None:
                handle.remove()
        self._before = self._after = None

    def _around_init(self, original: Any) -> Any:
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self.optimizers.add(optimizer)
            self._makes += 1
            self._made[optimizer] = self._makes

        return init

    def _before_step(self) -> Any:
        pulse, main, ident = self._pulse, self._pulse.main, threading.get_ident

        def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            if ident() == main and not self._in_scaler and not pulse.stepping:
                pulse.update_began, pulse.stepping = _now(), True

        return uncompiled(before_step)

    def _after_step(self) -> Any:
        """What follows each update. In every step: as few calls as can be."""
        pulse, flow, left, heard, due = self._pulse, self._flow, self.left, self.heard, self._due
        row, tell, ask, known = pulse.row, pulse.tell, pulse.ask, self.by_key
        apart, elsewhere = flow.apart, flow.elsewhere
        mark, on_host = self._marked, self._clock.mark is _now
        main, ident = pulse.main, threading.get_ident

        def after_step(optimizer: Any, args: Any = None, kwargs: Any = None) -> None:
            ended = _now()
            if self._in_scaler or ident() != main:
                self._stepped = True
                if pulse.in_backward and ident() != main:
                    self._pulse.stepped_elsewhere.append((optimizer, self._clock.mark()))
                return
            # torch hooks ``step`` of each class: one that calls its base's is heard twice.
            if not pulse.stepping:
                return
            pulse.stepping = False
            key = id(optimizer)
            # A backward inside the update: the optimizer was given a closure.
            back, done = pulse.backward_began, pulse.backward_ended
            began = max(pulse.update_began, done)
            pulse.updates = count = pulse.updates + 1
            pulse.in_step, pulse.begun, pulse.forward_phase = 0.0, True, True
            row[IN_STEP] = -count
            pulse.joined += pulse.joining
            row[JOINED] = pulse.joined
            if heard is not None:
                heard(optimizer)
            anchor, odd = flow.anchor, flow.foreign or elsewhere
            if key == anchor and not odd:
                while apart:
                    tell(apart.popleft())
                pulse.astray = 0
                at = ended if on_host else mark()
                tell(_new(Update, (key, began, ended, at, False, back, done)))
                flow.ended = steps = flow.ended + 1
                row[STEPS] = steps
                left[0] = rest = left[0] - 1
                if rest <= 0:
                    due()
            elif (
                anchor and not odd and pulse.astray < UPDATES_ASTRAY and known.get(key) is optimizer
            ):
                # One of several optimizers: another one ends the step.
                pulse.astray += 1
                tell(_new(Update, (key, began, ended, None, False)))
            else:
                pulse.astray = 0 if key == anchor else pulse.astray + 1
                late = self._is_late(key, optimizer)
                at = ended if on_host else mark()
                ask(Update(key, began, ended, at, late, back, done))

        self._tell = uncompiled(after_step)
        return after_step

    def _is_late(self, key: int, optimizer: Any) -> bool:
        """Take note of an optimizer; whether it was made when the loop was known."""
        if self.by_key.get(key) is optimizer:
            return False
        late = self._settled is not None and self._made.get(optimizer, 0) > self._settled
        if late:
            self.taken_over(optimizer)
            self.by_key.clear()
            self.settle()
        self.by_key[key] = optimizer
        self._clock.follow(parameters_of([optimizer]))
        return late

    def _around_scaler_step(self, original: Any) -> Any:
        pulse, last = self._pulse, None

        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal last
            if scaler is not last:
                self.scalers.add(scaler)
                last = scaler
            self._stepped, self._in_scaler = False, True
            pulse.update_began = _now()
            try:
                value = original(scaler, optimizer, *args, **kwargs)
            finally:
                self._in_scaler = False
            if not self._stepped and len(self.skips) < SKIPS_KEPT:
                self.skips.append(self.scaled)
            self.scaled += 1
            pulse.stepping = True
            self._tell(optimizer)
            return value

        return step


def _not_yet(optimizer: Any) -> None:
    """Before the hooks are in place."""


def _nothing(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Keeps a place among torch's hooks."""
