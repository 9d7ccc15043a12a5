"""Keeps the replicas equal: what ranks change while they run apart is put back."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch


class Snapshot:
    """Parameters, buffers, optimizer and scaler state at one moment."""

    def __init__(
        self, models: Iterable[Any], optimizers: Iterable[Any], scalers: Iterable[Any]
    ) -> None:
        self._optimizers = list(optimizers)
        self._scalers = [(s, copy.deepcopy(s.state_dict())) for s in scalers]
        self._live = _tensors(models, self._optimizers)
        self._kept = [t.detach().clone() for t in self._live]
        self._plain = [_plain_state(o) for o in self._optimizers]

    def restore(self) -> None:
        """Put every value back in place."""
        with torch.no_grad():
            for live, kept in zip(self._live, self._kept, strict=True):
                live.copy_(kept)
        for optimizer, plain in zip(self._optimizers, self._plain, strict=True):
            for parameter, values in plain.items():
                optimizer.state[parameter].update(values)
        for scaler, state in self._scalers:
            scaler.load_state_dict(state)


def _tensors(models: Iterable[Any], optimizers: Iterable[Any]) -> list[torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    for model in models:
        for tensor in (*model.parameters(), *model.buffers()):
            found[id(tensor)] = tensor
    for optimizer in optimizers:
        for tensor in _optimizer_tensors(optimizer):
            found[id(tensor)] = tensor
    return [t.detach() for t in found.values()]


def _optimizer_tensors(optimizer: Any) -> Iterable[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
    for state in optimizer.state.values():
        yield from (v for v in state.values() if isinstance(v, torch.Tensor))


def _plain_state(optimizer: Any) -> dict[Any, dict[str, Any]]:
    return {
        parameter: {k: v for k, v in state.items() if not isinstance(v, torch.Tensor)}
        for parameter, state in optimizer.state.items()
    }


def checksum(optimizers: Iterable[Any]) -> float:
    """A number that differs between ranks whose weights differ.

    Sharded parameters count by their local part.
    """
    total = 0.0
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
                total += float(local.detach().to(torch.float64).sum())
    return total
