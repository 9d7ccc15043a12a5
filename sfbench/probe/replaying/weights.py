"""Keeps the replicas equal: what ranks change while they run apart is put back."""

from __future__ import annotations

import copy
import operator
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch

from sfbench.probe.device import parameters_of


class Snapshot:
    """Parameters, buffers, optimizer and scaler state at one moment."""

    def __init__(
        self,
        models: Iterable[Any],
        optimizers: Iterable[Any],
        scalers: Iterable[Any],
        *,
        on_host: bool = False,
    ) -> None:
        self._optimizers = list(optimizers)
        self._scalers = [(s, copy.deepcopy(s.state_dict())) for s in scalers]
        self._live = _tensors(models, self._optimizers)
        self._kept = [_copied(t, on_host=on_host) for t in self._live]
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


def state_bytes(
    models: Iterable[Any],
    optimizers: Iterable[Any],
    home: Callable[[torch.Tensor], torch.device] = operator.attrgetter("device"),
) -> Counter[torch.device]:
    """What a snapshot takes of each device; ``home`` tells on which one a tensor counts."""
    found: Counter[torch.device] = Counter()
    for tensor in _tensors(models, list(optimizers)):
        found[home(tensor)] += tensor.numel() * tensor.element_size()
    return found


def _copied(tensor: torch.Tensor, *, on_host: bool) -> torch.Tensor:
    return tensor.to("cpu", copy=True) if on_host else tensor.clone()


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
    return total_of(
        parameter.to_local() if hasattr(parameter, "to_local") else parameter
        for parameter in parameters_of(optimizers)
    )


def total_of(tensors: Iterable[torch.Tensor]) -> float:
    """The sum over all elements; no tensor is copied, and each device waited for once.

    Kept apart by device until the end: an accelerator adds up in its own memory.
    """
    totals: dict[torch.device, torch.Tensor] = {}
    for tensor in tensors:
        part = tensor.detach().sum(dtype=_widest(tensor.device))
        before = totals.get(part.device)
        totals[part.device] = part if before is None else before + part
    return sum(float(total) for total in totals.values())


def _widest(device: torch.device) -> torch.dtype:
    """float64, except on those of Intel's GPUs that have none."""
    if device.type != "xpu" or torch.xpu.get_device_properties(device).has_fp64:
        return torch.float64
    return torch.float32
