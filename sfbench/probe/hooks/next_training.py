"""A script that trains one model after another: what is measured ends where the next one begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from sfbench.probe.device import parameters_of
from sfbench.probe.hooks.taps import Taps
from sfbench.probe.state import State
from sfbench.probe.stop import StopRun

SAME_MODEL = 0.01
"""Counts of parameters that differ by less are those of one training."""


class NextTrainingHooks:
    """Listens to new models and optimizers once steps are measured."""

    def __init__(self, state: State, ends: Callable[[], None]) -> None:
        """``ends``: what is done where the script comes to its end by itself."""
        self._state = state
        self._ends = ends

    def install(self, taps: Taps) -> None:
        """Patch the constructor of DDP, and hear of optimizers that take over."""
        taps.wrap(DistributedDataParallel, "__init__", self._around_model)
        self._state.updates.taken_over = self._by_optimizer

    def _around_model(self, original: Any) -> Any:
        """While ranks run apart no model can be wrapped: its constructor waits for all of them."""

        def init(model: Any, module: Any, *args: Any, **kwargs: Any) -> None:
            if self._state.models.sync_off:
                self._look(module.parameters(), apart=True)
            original(model, module, *args, **kwargs)

        return init

    def _by_optimizer(self, optimizer: Any) -> None:
        self._look(parameters_of([optimizer]), apart=False)

    def _look(self, parameters: Iterable[torch.Tensor], *, apart: bool) -> None:
        state = self._state
        if state.finished or state.job.probe.checks:
            return
        found = [p for p in parameters if p.requires_grad]
        trained = list(parameters_of(state.updates.by_key.values()))
        if not (apart or is_another(trained, found)):
            return
        if state.measuring_began:
            state.next_training = _size(found)
            self._ends()
            raise StopRun
        if state.loop_info is not None:
            state.loop_info = replace(state.loop_info, parameters=_size(found))


def is_another(trained: Iterable[torch.Tensor], found: Iterable[torch.Tensor]) -> bool:
    """Whether a model is trained that is not the one so far, or much more or less of it."""
    before, now = list(trained), list(found)
    if not before or not now:
        return False
    if {id(p) for p in before}.isdisjoint(id(p) for p in now):
        return True
    return abs(_size(now) / max(1, _size(before)) - 1) > SAME_MODEL


def _size(parameters: Iterable[torch.Tensor]) -> int:
    return sum(p.numel() for p in parameters)
