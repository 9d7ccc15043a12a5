"""Looks into a batch of any shape: tensors, dicts, tuples, objects."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

_DEPTH = 4
_PLAIN = {dict, list, tuple}


def tensors(batch: Any, depth: int = _DEPTH) -> Iterator[torch.Tensor]:
    """All tensors of a batch, in order, down to a few levels of nesting.

    Those that cannot be read value by value (sparse, nested, on no device) are passed over.
    """
    if isinstance(batch, torch.Tensor):
        if batch.layout == torch.strided and not batch.is_nested and not batch.is_meta:
            yield batch
    elif isinstance(batch, np.ndarray):
        yield from _of_array(batch)
    elif depth > 0:
        for part in _parts(batch):
            yield from tensors(part, depth - 1)


def _of_array(array: np.ndarray[Any, Any]) -> Iterator[torch.Tensor]:
    if array.dtype.kind in "biufc":
        with contextlib.suppress(TypeError, ValueError):  # of another byte order, or read backwards
            yield torch.from_numpy(array)


def _parts(batch: Any) -> Sequence[Any]:
    if isinstance(batch, list | tuple):
        return batch
    if isinstance(batch, str | bytes | int | float | type) or batch is None:
        return ()
    try:
        return _parts_of_object(batch)
    except Exception:  # what is computed when it is asked for may raise anything: it is no tensor
        return ()


def _parts_of_object(batch: Any) -> Sequence[Any]:
    if isinstance(batch, Mapping):
        return list(batch.values())
    if dataclasses.is_dataclass(batch):
        return [getattr(batch, field.name, None) for field in dataclasses.fields(batch)]
    if hasattr(batch, "__dict__"):
        return list(vars(batch).values())
    return [getattr(batch, name, None) for name in getattr(type(batch), "__slots__", ())]


def samples_in(batch: Any) -> int:
    """The leading dimension that most tensors share, among equals the first; 0 without any.

    A dimension of 1 counts only if there is no other: it is seldom a batch. In every step of
    some loops: batches of the usual kinds are looked into without a further call.
    """
    sizes: dict[int, int] = {}
    parts = [(batch, _DEPTH)]
    while parts:
        part, depth = parts.pop()
        if isinstance(part, torch.Tensor):
            if part.dim() and not part.is_nested:
                size = part.shape[0]
                sizes[size] = sizes.get(size, 0) + 1
        elif type(part) in _PLAIN and depth > 0:
            for inner in reversed(part.values() if type(part) is dict else part):
                parts.append((inner, depth - 1))
        else:
            parts += [(t, 0) for t in reversed(list(tensors(part, depth)))]
    if len(sizes) > 1:
        sizes.pop(1, None)
    return max(sizes, key=sizes.__getitem__) if sizes else 0


def elements_in(batch: Any) -> int:
    """Numbers in all tensors of a batch. If batches are of unlike length in every step: those of
    the usual kinds are looked into without a further call."""
    total, parts = 0, [batch]
    while parts:
        part = parts.pop()
        if isinstance(part, torch.Tensor):
            total += 0 if part.is_nested else part.numel()
        elif type(part) in _PLAIN:
            parts.extend(part.values() if type(part) is dict else part)
        else:
            total += sum(tensor.numel() for tensor in tensors(part))
    return total


def nbytes(batch: Any) -> int:
    """Bytes of all tensors of a batch."""
    return sum(t.numel() * t.element_size() for t in tensors(batch))


def fingerprint(batch: Any) -> float:
    """A number that two batches share only if their contents do: a weighted sum over elements."""
    total = 0.0
    for tensor in tensors(batch):
        flat = tensor.detach().reshape(-1)[:4096].to("cpu", torch.float64)
        weights = torch.arange(1, flat.numel() + 1, dtype=torch.float64)
        total += float((flat * weights.sqrt()).sum())
    return total
