"""Builds loaders and models with other arguments than the script gives: what a trial changes."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader

from sfbench.probe.hooks.taps import Listener, Taps
from sfbench.protocol.changes import Changes

_WORKERS_ONLY = ("prefetch_factor", "persistent_workers")
"""Arguments that a loader without workers refuses."""


class ChangeHooks:
    """Puts changes in where constructors are called. ``line``: which line of the script runs."""

    def __init__(self, changes: Changes, line: Callable[[], str]) -> None:
        self._changes = changes
        self._line = line
        self._freezing: Listener | None = None

        self._forwards = 0

    def install(self, taps: Taps) -> None:
        """Patch the constructors that the changes are about."""
        changes = self._changes
        if changes.loader or changes.batch_factor > 1:
            taps.wrap(DataLoader, "__init__", self._around_loader)
        if changes.model or changes.compress:
            taps.wrap(DistributedDataParallel, "__init__", self._around_model)
        if changes.sync_every > 1:
            taps.wrap(DistributedDataParallel, "forward", self._around_forward)
        if changes.freeze:
            self._freezing = taps.wrap(DistributedDataParallel, "forward", self._around_first)

    def _around_loader(self, original: Any) -> Any:
        signature = inspect.signature(original)

        def init(*args: Any, **kwargs: Any) -> None:
            if self._line() not in self._changes.loader_lines:
                original(*args, **kwargs)
                return
            bound = signature.bind(*args, **kwargs)
            bound.arguments.update(self._changes.loader)
            if not bound.arguments.get("num_workers"):
                for name in _WORKERS_ONLY:
                    bound.arguments.pop(name, None)
            _enlarge(bound.arguments, self._changes.batch_factor)
            original(*bound.args, **bound.kwargs)

        return init

    def _around_model(self, original: Any) -> Any:
        signature = inspect.signature(original)

        def init(*args: Any, **kwargs: Any) -> None:
            bound = signature.bind(*args, **kwargs)
            bound.arguments.update(self._changes.model)
            original(*bound.args, **bound.kwargs)
            if self._changes.compress:
                model = bound.args[0]
                model.register_comm_hook(model.process_group, bf16_compress_hook)

        return init

    def _around_forward(self, original: Any) -> Any:
        every = self._changes.sync_every

        def forward(model: Any, *inputs: Any, **kwargs: Any) -> Any:
            if not (torch.is_grad_enabled() and model.require_backward_grad_sync):
                return original(model, *inputs, **kwargs)
            self._forwards += 1
            if self._forwards % every == 0:
                return original(model, *inputs, **kwargs)
            with model.no_sync():  # backward goes by what held in forward
                return original(model, *inputs, **kwargs)

        return forward

    def _around_first(self, original: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._freezing is not None:
                self._freezing.leave()
                self._freezing = None
                gc.collect()
                gc.freeze()
            return original(*args, **kwargs)

        return forward


def _enlarge(arguments: dict[str, Any], factor: int) -> None:
    """Larger batches, whoever makes them: the loader, or a plain batch sampler that it is given."""
    sampler = arguments.get("batch_sampler")
    if factor == 1:
        return
    if type(sampler) is BatchSampler:
        sampler.batch_size *= factor
    elif sampler is None and arguments.get("batch_size", 1) is not None:
        arguments["batch_size"] = factor * arguments.get("batch_size", 1)
