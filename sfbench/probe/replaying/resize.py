"""Cuts a batch to half and joins it to double, for the batch curve."""

from __future__ import annotations

from typing import Any

import torch

from sfbench.common.schema import Rung

SCALES: dict[Rung, float] = {"half": 0.5, "double": 2.0}


def resized(batch: Any, samples: int, rung: str) -> Any | None:
    """A batch of ``samples * SCALES[rung]`` samples, or None if it cannot be made.

    Tensors and lists whose length is the number of samples are cut or repeated; whatever else a
    batch holds stays as it is. At least one tensor has to have changed.
    """
    if rung == "half" and samples < 2:
        return None
    changed: list[bool] = []
    new = _resize(batch, samples, rung, changed)
    return new if changed else None


def pinned(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in page-locked memory of the host."""
    return tensor.device.type == "cpu" and tensor.is_pinned()


def _resize(value: Any, samples: int, rung: str, changed: list[bool]) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 or value.shape[0] != samples:
            return value
        changed.append(True)
        new = value[: samples // 2].clone() if rung == "half" else torch.cat([value, value])
        # Copied to a device as fast as the original.
        return new.pin_memory() if pinned(value) else new
    if type(value) is dict:
        return {k: _resize(v, samples, rung, changed) for k, v in value.items()}
    if type(value) in (list, tuple):
        if len(value) == samples and samples > 2 and not isinstance(value[0], torch.Tensor):
            return value[: samples // 2] if rung == "half" else value + value
        return type(value)(_resize(v, samples, rung, changed) for v in value)
    return value
