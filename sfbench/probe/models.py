"""Hooks on DistributedDataParallel: forwards, and gradient sync switched off on request."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from sfbench.probe.batch import samples_in
from sfbench.probe.events import Event, Forward
from sfbench.probe.patches import Patches


class Models:
    """DDP models as long as the script keeps them, by their first forward: alike on all ranks."""

    def __init__(self) -> None:
        self._by_id: weakref.WeakValueDictionary[int, DistributedDataParallel] = (
            weakref.WeakValueDictionary()
        )

    def __iter__(self) -> Iterator[DistributedDataParallel]:
        return iter(list(self._by_id.values()))

    def add(self, model: DistributedDataParallel) -> None:
        """Take a model that was called."""
        self._by_id.setdefault(id(model), model)


class ModelHooks:
    """Feeds a Forward for each call of a DDP model."""

    def __init__(self, feed: Callable[[Event], None]) -> None:
        self.feed = feed
        self._main = threading.get_ident()
        self.models = Models()
        self._last: Any = None
        self.training_forwards = 0
        self.counts_samples = True
        """Whether anybody wants to know the samples of an input; looking costs microseconds."""
        self.before: Callable[[Any, Any], bool] = lambda model, batch: False
        """Called with the model and its input before each training forward; True: no sync."""
        self.sync_off = False
        """While true, gradients and buffers stay on their rank."""

    def install(self, patches: Patches) -> None:
        """Patch DistributedDataParallel."""
        patches.wrap(DistributedDataParallel, "forward", self._around_forward)

    def _around_forward(self, original: Any) -> Any:
        # In every step: as few calls as can be.
        def forward(model: Any, *inputs: Any, **kwargs: Any) -> Any:
            began, grad = time.perf_counter(), torch.is_grad_enabled()
            unsynced = grad and self.before(model, (inputs, kwargs))
            if self.sync_off or unsynced:
                output = _unsynced(original, model, inputs, kwargs)
            else:
                output = original(model, *inputs, **kwargs)
            if threading.get_ident() != self._main:
                return output
            if model is not self._last:
                self.models.add(model)
                self._last = model
            self.training_forwards += grad
            samples = samples_in((inputs, kwargs)) if self.counts_samples else 0
            self.feed(Forward(id(model), began, time.perf_counter(), samples, grad))
            return output

        # torch.compile must not look into the probe; the model inside is compiled as ever.
        return torch.compiler.disable(forward, recursive=False)  # type: ignore[no-untyped-call]


def forget_unsynced(models: Iterable[DistributedDataParallel]) -> None:
    """Make DDP ready to sync after forwards that did not.

    With find_unused_parameters it keeps in mind which parameters were used since the last sync, and
    fails where one of these has no gradient any more.
    """
    for model in models:
        if model.find_unused_parameters and not model.static_graph:
            model.reducer._reset_state()


def _unsynced(original: Any, model: Any, inputs: Any, kwargs: Any) -> Any:
    """One forward with the sync flags off; whatever the script set comes back afterwards.

    The script may use no_sync() around forward and backward or set the flag itself; DDP reads it
    only during forward, so overriding it for this long serves both (and no buffer is broadcast).
    """
    gradients, parameters = model.require_backward_grad_sync, model.require_forward_param_sync
    model.require_backward_grad_sync = model.require_forward_param_sync = False
    try:
        return original(model, *inputs, **kwargs)
    finally:
        model.require_backward_grad_sync = gradients
        model.require_forward_param_sync = parameters
