"""Hooks on DistributedDataParallel: forwards, and gradient sync switched off on request."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from sfbench.probe.hooks.events import Forward
from sfbench.probe.hooks.pulse import Pulse
from sfbench.probe.hooks.taps import Listener, Taps
from sfbench.probe.hooks.weak import WeakTable
from sfbench.probe.replaying.batch import samples_in
from sfbench.protocol.heartbeat import IN_STEP

FORWARDS = 512
"""Forwards are counted around in the fraction of a heartbeat's in_step, below ``IN_BACKWARD``."""
IN_BACKWARD = 0.5
"""Added to in_step from the start of backward."""
_GRADIENTS, _PARAMETERS = "require_backward_grad_sync", "require_forward_param_sync"
_now = time.perf_counter
_new: Any = tuple.__new__
"""Makes a named tuple without a Python call."""


class Models:
    """DDP models as long as the script keeps them, by their first forward: alike on all ranks."""

    def __init__(self) -> None:
        self._table: WeakTable[weakref.ref[DistributedDataParallel]] = WeakTable()
        self.known = self._table.by_id
        """By id: to look one up without a call."""

    def __iter__(self) -> Iterator[DistributedDataParallel]:
        found = [reference() for reference in list(self.known.values())]
        return iter([model for model in found if model is not None])

    def add(self, model: DistributedDataParallel) -> None:
        """Take a model that was called."""
        if id(model) not in self.known:
            self._table.put(model, weakref.ref(model))


class ModelHooks:
    """Tells a Forward for each call of a DDP model."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._listener: Listener | None = None
        self.models = Models()
        self.training_forwards = 0
        self.counts_samples = True
        """Whether anybody wants to know the samples of an input; looking costs microseconds."""
        self.sync_off = False
        """While true, gradients and buffers stay on their rank."""

    def install(self, taps: Taps) -> None:
        """Patch DistributedDataParallel, and what starts a backward."""
        self._listener = taps.wrap(DistributedDataParallel, "forward", self._around_forward)
        taps.wrap(torch.autograd, "backward", self._around_backward)

    def connect(self) -> None:
        """Make the hook anew from what the pulse and the attributes say now."""
        if self._listener is not None:
            self._listener.swap(self._around_forward)

    def _around_forward(self, original: Any) -> Any:
        """In every step: as few calls as can be.

        With sync off, DDP's flags are off for the length of its forward, and what the script set
        comes back afterwards. The script may use no_sync() around forward and backward or set the
        flag itself; DDP reads it only during forward, so this serves both (and no buffer is
        broadcast). They are set past ``nn.Module``, whose setter costs a call each.
        """
        pulse, row, tell, known = self._pulse, self._pulse.row, self._pulse.tell, self.models.known
        main, ident, graded = pulse.main, threading.get_ident, torch.is_grad_enabled
        sync_off = self.sync_off
        count = _samples if self.counts_samples else None

        def forward(model: Any, /, *inputs: Any, **kwargs: Any) -> Any:
            began, grad = _now(), graded()
            if grad and model.require_backward_grad_sync:
                pulse.begun = True
                pulse.forwards = turn = (pulse.forwards + 1) % FORWARDS
                pulse.in_step = at = pulse.updates + 1 + turn / (4 * FORWARDS)
                row[IN_STEP] = at
            if sync_off:
                flags = vars(model)
                asked = flags[_GRADIENTS], flags[_PARAMETERS]
                flags[_GRADIENTS] = flags[_PARAMETERS] = False
                try:
                    output = original(model, *inputs, **kwargs)
                finally:
                    flags[_GRADIENTS], flags[_PARAMETERS] = asked
            else:
                output = original(model, *inputs, **kwargs)
            if ident() != main:
                return output
            if id(model) not in known:
                self.models.add(model)
            self.training_forwards += grad
            samples = count(inputs, kwargs) if count is not None else 0
            tell(_new(Forward, (id(model), began, _now(), samples, grad)))
            return output

        return forward

    def _around_backward(self, original: Any) -> Any:
        pulse, row = self._pulse, self._pulse.row

        def backward(*args: Any, **kwargs: Any) -> Any:
            pulse.forward_phase = False
            if pulse.in_step > 0.0:
                row[IN_STEP] = pulse.in_step + IN_BACKWARD
            pulse.in_backward = True
            pulse.backward_began = _now()
            try:
                value = original(*args, **kwargs)
            finally:
                pulse.in_backward = False
            pulse.backward_ended = _now()
            if pulse.stepped_elsewhere:
                pulse.backward_over()
            return value

        return backward


def _samples(inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return samples_in(inputs[0] if len(inputs) == 1 and not kwargs else (inputs, kwargs))


def forget_unsynced(models: Iterable[DistributedDataParallel]) -> None:
    """Make DDP ready to sync after forwards that did not.

    With find_unused_parameters it keeps in mind which parameters were used since the last sync, and
    fails where one of these has no gradient any more.
    """
    for model in models:
        if model.find_unused_parameters and not model.static_graph:
            model.reducer._reset_state()
