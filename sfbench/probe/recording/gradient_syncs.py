"""How often a DDP model averages its gradients per update."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from sfbench.probe.hooks.taps import Listener, Taps
from sfbench.probe.recording.call_site import CallSite

UPDATES = 16
"""Updates whose backward passes are counted."""


class Window(NamedTuple):
    """What led to one update."""

    forwards: int
    backwards: int
    synced: int
    """Backward passes that averaged the gradients."""


@dataclass(slots=True)
class SyncCount:
    """One DDP model's count.

    DDP decides in forward whether the next backward averages gradients. A hook on one parameter
    that has a gradient tells each backward.
    """

    model: Any
    line: str
    wrapped: str = ""
    """Where it was put into DDP."""
    windows: list[Window] = field(default_factory=list)
    forwards: int = 0
    backwards: int = 0
    synced: int = 0
    closed: bool = False
    _armed: bool = False
    _parameter: Any = None
    _handle: Any = None

    def forward(self, synced: bool) -> None:
        """A training forward begins."""
        self.forwards += 1
        self._armed = self._armed or synced

    def updated(self, optimizer: Any) -> None:
        """An optimizer has been stepped: a window ends, or, the first time, counting begins."""
        if self.closed:
            pass
        elif self._parameter is None:
            self._begin()
        elif self.belongs_to(optimizer):
            if len(self.windows) < UPDATES:
                self.windows.append(Window(self.forwards, self.backwards, self.synced))
            else:
                self.close()
        else:
            return
        self.clear()

    def belongs_to(self, optimizer: Any) -> bool:
        """Whether an optimizer updates this model."""
        return any(self._parameter is p for g in optimizer.param_groups for p in g["params"])

    def clear(self) -> None:
        """What was accumulated so far has been used, or thrown away."""
        self.forwards = self.backwards = self.synced = 0

    def close(self) -> None:
        """Count no more backward passes."""
        self.closed = True
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _begin(self) -> None:
        parameters = (p for p in self.model.parameters() if p.grad is not None)
        self._parameter = next(parameters, None)
        if self._parameter is not None:
            self._handle = self._parameter.register_post_accumulate_grad_hook(self._backward)

    def _backward(self, parameter: Any) -> None:
        self.backwards += 1
        self.synced += self._armed
        self._armed = False


class SyncWatch:
    """Follows DDP's forwards, updates and zero_grad."""

    def __init__(self, call_site: CallSite) -> None:
        self._call_site = call_site
        self._trial = 0
        self._open = True
        """Some model's syncs are still counted."""
        self._listeners: list[Listener] = []
        self._wrapped: dict[int, str] = {}
        self.counts: dict[int, SyncCount] = {}

    def install(self, taps: Taps) -> None:
        """Patch zero_grad of Optimizer and Module, and the constructor of DDP."""
        taps.wrap(DistributedDataParallel, "__init__", self._around_init)
        self._listeners = [
            taps.wrap(owner, "zero_grad", self._around_zero_grad)
            for owner in (Optimizer, nn.Module)
        ]

    def close(self) -> None:
        """Enough was seen: take the hooks away, those on parameters too."""
        while self._listeners:
            self._listeners.pop().leave()
        for count in self.counts.values():
            count.close()

    def forward(self, model: Any) -> SyncCount:
        """A training forward of a DDP model begins."""
        count = self.counts.get(id(model))
        if count is None:
            wrapped = self._wrapped.get(id(model), "")
            count = self.counts[id(model)] = SyncCount(model, self._call_site.line(), wrapped)
            self._open = True
        count.forward(model.require_backward_grad_sync)
        return count

    def updated(self, optimizer: Any) -> None:
        """An optimizer has been stepped."""
        if self._open or self._trial:
            for count in self.counts.values():
                count.updated(optimizer)
            self._open = not all(count.closed for count in self.counts.values())

    def superfluous(self) -> int:
        """Backward passes of most updates, if each of several averages gradients; else 0."""
        for count in self.counts.values():
            if len(count.windows) > 1 and all(len(set(window)) == 1 for window in count.windows):
                usual = Counter(window.synced for window in count.windows).most_common(1)[0][0]
                if usual > 1:
                    return usual
        return 0

    def try_without(self, on: bool) -> None:
        """For a trial: leave out all syncs but the last one of an update, as would be right."""
        self._trial = self.superfluous() if on else 0

    @property
    def trying(self) -> bool:
        """Whether a trial is on."""
        return self._trial > 0

    def leaves_out(self, count: SyncCount) -> bool:
        """Whether the forward that begins is one of those left out."""
        return count.forwards < self._trial

    def _around_init(self, original: Any) -> Any:
        def init(model: Any, *args: Any, **kwargs: Any) -> None:
            self._wrapped[id(model)] = self._call_site.line()
            original(model, *args, **kwargs)

        return init

    def _around_zero_grad(self, original: Any) -> Any:
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> Any:
            if self._open:
                # Gradients that are thrown away were not accumulated.
                for count in self.counts.values():
                    if count.backwards and _clears(owner, count):
                        count.clear()
            return original(owner, *args, **kwargs)

        return zero_grad


def _clears(owner: Any, count: SyncCount) -> bool:
    if isinstance(owner, Optimizer):
        return count.belongs_to(owner)
    return owner is count.model or owner is count.model.module
