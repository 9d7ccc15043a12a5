"""Learning rates, and how often their schedulers step."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from sfbench.probe.hooks.taps import Listener, Taps
from sfbench.probe.recording.call_site import CallSite
from sfbench.protocol.evidence import Optimizer

_ONCE_PER_RANK = {"accelerate.scheduler"}
"""Modules that step a scheduler once per rank and update, so that schedules are in samples."""
UPDATES = 64
"""Updates between which scheduler steps are counted."""


class _Seen:
    """One optimizer that has been stepped."""

    def __init__(self, optimizer: Any) -> None:
        group = optimizer.param_groups[0]
        self.name = type(optimizer).__name__
        # A scheduler keeps the rate that it starts from.
        self.rate = float(group.get("initial_lr", group["lr"]))
        self.scheduler: str | None = None
        self.line = ""
        self.stepped_by = ""
        self.windows: list[int] = []


def _stepped_by() -> str:
    """The library among ``_ONCE_PER_RANK`` that calls a scheduler's step just now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module in _ONCE_PER_RANK:
            return module.partition(".")[0]
        frame = frame.f_back
    return ""


class RateWatch:
    """Wraps the step of learning-rate schedulers."""

    def __init__(self, call_site: CallSite) -> None:
        self._call_site = call_site
        self._listeners: list[Listener] = []
        self._closed = False
        self._depth = 0
        self._steps: Counter[tuple[int, int]] = Counter()
        self._seen: dict[int, _Seen] = {}

    def install(self, taps: Taps) -> None:
        """Patch the schedulers. Those made of others step once, whatever they step inside."""
        self._listeners = [
            taps.wrap(owner, "step", self._around_step)
            for owner in (LRScheduler, ReduceLROnPlateau)
            if "step" in vars(owner)
        ]

    def close(self) -> None:
        """Enough was seen, but for schedulers that have not stepped yet, as at an epoch's end."""
        self._closed = True
        if all(seen.scheduler is not None for seen in self._seen.values()):
            while self._listeners:
                self._listeners.pop().leave()

    def updated(self, key: int, optimizer: Any) -> None:
        """An optimizer has been stepped: a window ends."""
        seen = self._seen.get(key)
        if seen is None:
            self._seen[key] = _Seen(optimizer)
        elif len(seen.windows) < UPDATES:
            # Of several schedulers (warmup, then decay) each has its own step.
            counts = [n for (owner, _), n in self._steps.items() if owner == key]
            seen.windows.append(max(counts, default=0))
        if self._steps:
            self._steps = Counter({k: n for k, n in self._steps.items() if k[0] != key})

    def optimizers(self) -> tuple[Optimizer, ...]:
        """All optimizers that were stepped, in the order of their first step."""
        return tuple(
            Optimizer(
                name=seen.name,
                rate=seen.rate,
                scheduler=seen.scheduler,
                scheduler_line=seen.line,
                scheduler_steps=tuple(seen.windows),
                scheduler_stepped_by=seen.stepped_by,
            )
            for seen in self._seen.values()
        )

    def _around_step(self, original: Any) -> Any:
        known = self._seen

        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            if self._closed:  # the scheduler of another optimizer is waited for
                seen = known.get(id(scheduler.optimizer))
                if seen is None or seen.scheduler is not None:
                    return original(scheduler, *args, **kwargs)
            if self._depth == 0:
                self._note(scheduler)
            self._depth += 1
            try:
                return original(scheduler, *args, **kwargs)
            finally:
                self._depth -= 1

        return step

    def _note(self, scheduler: Any) -> None:
        seen = self._seen.get(id(getattr(scheduler, "optimizer", None)))
        if seen is None:
            return  # before the first update: the step that its constructor makes
        if seen.scheduler is None:
            seen.scheduler, seen.line = type(scheduler).__name__, self._call_site.line()
            seen.stepped_by = _stepped_by()
        if len(seen.windows) < UPDATES:
            self._steps[id(scheduler.optimizer), id(scheduler)] += 1
        if self._closed:
            self.close()
