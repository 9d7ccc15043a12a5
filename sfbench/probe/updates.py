"""Hooks on optimizers and gradient scalers: when an update has finished."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from sfbench.probe.clock import Clock
from sfbench.probe.device import parameters_of
from sfbench.probe.events import Event, Update
from sfbench.probe.patches import Patches


class UpdateHooks:
    """Feeds an Update after each optimizer step, also after one that a scaler skipped."""

    def __init__(self, feed: Callable[[Event], None], clock: Clock) -> None:
        self.feed = feed
        self._clock, self._mark = clock, clock.mark
        self._inside_scaler = False
        self._main = threading.get_ident()
        self._handles: list[Any] = []
        self._began = 0.0
        self._stepped = False
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.scalers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.by_key: dict[int, Optimizer] = {}
        """Those in use: when the script goes on with new ones, the others are let go."""
        self._made: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._makes = 0
        self._settled: int | None = None
        self.skipped = 0
        self.scaled = 0

    @property
    def count(self) -> int:
        """Optimizers that the script has made."""
        return len(self.optimizers)

    def install(self, patches: Patches) -> None:
        """Register torch's global hooks and patch the scaler and the constructors."""
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        patches.wrap(Optimizer, "__init__", self._around_init)
        patches.wrap(torch.amp.GradScaler, "step", self._around_scaler_step)

    def settle(self) -> None:
        """The loop is known: updates of optimizers made from here on are ``late``."""
        self._settled = self._makes

    def remove(self) -> None:
        """Take the global hooks away."""
        while self._handles:
            self._handles.pop().remove()

    def _around_init(self, original: Any) -> Any:
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self.optimizers.add(optimizer)
            self._makes += 1
            self._made[optimizer] = self._makes

        return init

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not self._inside_scaler and threading.get_ident() == self._main:
            self._began = time.perf_counter()

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._inside_scaler or threading.get_ident() != self._main:
            self._stepped = True
            return
        self._tell(optimizer)

    def _around_scaler_step(self, original: Any) -> Any:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self.scalers.add(scaler)
            self._stepped = False
            self._began = time.perf_counter()
            with self._in_scaler():
                value = original(scaler, optimizer, *args, **kwargs)
            self.scaled += 1
            self.skipped += not self._stepped
            self._tell(optimizer)
            return value

        return step

    @contextlib.contextmanager
    def _in_scaler(self) -> Iterator[None]:
        self._inside_scaler = True
        try:
            yield
        finally:
            self._inside_scaler = False

    def _tell(self, optimizer: Any) -> None:
        key = id(optimizer)
        late = False
        if self.by_key.get(key) is not optimizer:
            late = self._settled is not None and self._made.get(optimizer, 0) > self._settled
            if late:
                self.by_key.clear()
                self.settle()
            self.by_key[key] = optimizer
            self._clock.follow(parameters_of([optimizer]))
        self.feed(Update(key, self._began, time.perf_counter(), self._mark(), late))
