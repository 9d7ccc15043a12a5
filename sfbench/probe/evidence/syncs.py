"""How often a DDP model averages its gradients per update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from sfbench.probe.evidence.place import Place
from sfbench.probe.patches import Patches

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
    windows: list[Window] = field(default_factory=list)
    forwards: int = 0
    backwards: int = 0
    synced: int = 0
    _armed: bool = False
    _parameter: Any = None
    _handle: Any = None

    def forward(self, synced: bool) -> None:
        """A training forward begins."""
        self.forwards += 1
        self._armed = self._armed or synced

    def updated(self, optimizer: Any) -> None:
        """An optimizer has been stepped: a window ends, or, the first time, counting begins."""
        if self._parameter is None:
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
    """Wraps DDP's forward and zero_grad.

    ``on_forward`` is called before each training forward of a DDP model: whether its backward will
    average gradients, what it is given, and the line of the script.
    """

    def __init__(self, place: Place, on_forward: Callable[[bool, Any, str], None]) -> None:
        self._place = place
        self._on_forward = on_forward
        self._trial = 0
        self.counts: dict[int, SyncCount] = {}

    def install(self, patches: Patches) -> None:
        """Patch DistributedDataParallel, Optimizer and Module."""
        patches.wrap(DistributedDataParallel, "forward", self._around_forward)
        patches.wrap(Optimizer, "zero_grad", self._around_zero_grad)
        patches.wrap(nn.Module, "zero_grad", self._around_zero_grad)

    def remove(self) -> None:
        """Take the hooks on parameters away."""
        for count in self.counts.values():
            count.close()

    def updated(self, optimizer: Any) -> None:
        """An optimizer has been stepped."""
        for count in self.counts.values():
            count.updated(optimizer)

    def superfluous(self) -> int:
        """Backward passes of most updates, where each of several averages gradients; else 0."""
        for count in self.counts.values():
            if len(count.windows) > 1 and all(len(set(window)) == 1 for window in count.windows):
                usual = Counter(window.synced for window in count.windows).most_common(1)[0][0]
                if usual > 1:
                    return usual
        return 0

    def try_without(self, on: bool) -> None:
        """For a trial: leave out all syncs but the last one of an update, as would be right."""
        self._trial = self.superfluous() if on else 0

    def _around_forward(self, original: Any) -> Any:
        def forward(model: Any, *inputs: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return original(model, *inputs, **kwargs)
            count = self.counts.get(id(model))
            if count is None:
                count = self.counts[id(model)] = SyncCount(model, self._place.line())
            synced = bool(model.require_backward_grad_sync)
            count.forward(synced)
            self._on_forward(synced, (inputs, kwargs), count.line)
            if synced and count.forwards < self._trial:
                return _unsynced(original, model, inputs, kwargs)
            return original(model, *inputs, **kwargs)

        # torch.compile must not look into the probe; the model inside is compiled as ever.
        return torch.compiler.disable(forward, recursive=False)  # type: ignore[no-untyped-call]

    def _around_zero_grad(self, original: Any) -> Any:
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> Any:
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


def _unsynced(original: Any, model: Any, inputs: Any, kwargs: Any) -> Any:
    model.require_backward_grad_sync = False
    try:
        return original(model, *inputs, **kwargs)
    finally:
        model.require_backward_grad_sync = True
