"""Checksums of what batches and datasets hold, so that ranks can be compared without their data."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfbench.probe.replaying.batch import tensors

_VALUES = 256
"""Looked at per sample (or per array of a dataset), evenly spread."""
_LABEL_TYPES = {torch.int16, torch.int32, torch.int64, torch.bool}
_ITEMS = 24
_DEPTH = 4
_TEXTS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prints:
    """Checksums of a batch."""

    contents: list[int]
    """One per sample; a single one if the batch cannot be taken apart."""
    labels: list[int]
    """Of each sample's whole numbers; empty if it has none."""
    whole: bool
    """The batch could not be taken apart."""


def batch_prints(batch: Any, samples: int) -> Prints:
    """Checksums of a batch of ``samples`` samples along the first dimension of its tensors."""
    parts = list(tensors(batch))
    if samples < 1 or not parts or any(t.dim() < 1 or len(t) != samples for t in parts):
        return Prints(contents=[_whole_print(batch, parts)], labels=[], whole=True)
    contents, labels = [0] * samples, [0] * samples
    has_labels = False
    for part in parts:
        rows = _rows(part)
        contents = [zlib.crc32(row, before) for row, before in zip(rows, contents, strict=True)]
        if part.dtype in _LABEL_TYPES:
            has_labels = True
            labels = [zlib.crc32(row, before) for row, before in zip(rows, labels, strict=True)]
    return Prints(contents=contents, labels=labels if has_labels else [], whole=False)


def _rows(tensor: torch.Tensor) -> list[bytes]:
    """Bytes of some values of each row."""
    flat = tensor.detach().reshape(len(tensor), -1)
    flat = flat[:, :: max(1, flat.shape[1] // _VALUES)]
    raw = flat.to("cpu").contiguous().view(torch.uint8).numpy()
    return [row.tobytes() for row in raw]


def _whole_print(batch: Any, parts: Sequence[torch.Tensor]) -> int:
    if not parts:
        return zlib.crc32(repr(batch)[:4096].encode()) if _is_plain(batch) else 0
    total = 0
    for part in parts:
        flat = part.detach().reshape(1, -1)
        if flat.numel():
            total = zlib.crc32(_rows(flat)[0], zlib.crc32(repr(tuple(part.shape)).encode(), total))
    return total


def _is_plain(value: Any) -> bool:
    """Made of text and numbers: its repr holds no address."""
    if isinstance(value, list | tuple):
        return all(_is_plain(part) for part in value[:_ITEMS])
    return isinstance(value, str | bytes | int | float)


def dataset_digest(dataset: Any) -> int:
    """A number that differs between datasets that hold different things.

    Looks at attributes: numbers, text, paths, a few items of long lists, a few values of arrays.
    Datasets of equal digest may still differ in what they do with an index.
    """
    total = 0
    # What a dataset computes when it is looked at may raise anything: up to there it is compared.
    with contextlib.suppress(Exception):
        for text in islice(_texts(dataset, _DEPTH, set()), _TEXTS):
            total = zlib.crc32(text, total)
    return total


def _texts(value: Any, depth: int, seen: set[int]) -> Iterator[bytes]:
    yield type(value).__name__.encode()
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.layout == torch.strided and value.numel():
            yield f"{tuple(value.shape)}".encode()
            yield _rows(value.reshape(1, -1))[0]
    elif isinstance(value, np.ndarray):
        yield from _array_texts(value)
    elif isinstance(value, str | bytes | int | float | bool | Path | torch.dtype) or value is None:
        yield repr(value)[:4096].encode()
    elif depth > 0 and id(value) not in seen:
        seen.add(id(value))
        yield from _part_texts(value, depth, seen)


def _array_texts(value: np.ndarray[Any, Any]) -> Iterator[bytes]:
    yield f"{value.shape}{value.dtype}{getattr(value, 'filename', '')}".encode()
    # Values of a mapped file would have to be read from disk.
    if value.dtype != object and value.size and not isinstance(value, np.memmap):
        yield value.reshape(-1)[:: max(1, value.size // _VALUES)].tobytes()


def _part_texts(value: Any, depth: int, seen: set[int]) -> Iterator[bytes]:
    if isinstance(value, Mapping):
        yield str(len(value)).encode()
        for key in _some(list(value)):
            yield from _texts(key, depth - 1, seen)
            yield from _texts(value[key], depth - 1, seen)
    elif isinstance(value, list | tuple | range):
        yield str(len(value)).encode()
        for part in _some(value):
            yield from _texts(part, depth - 1, seen)
    elif type(value).__module__ != "builtins" and not isinstance(value, type):
        for name, part in sorted(vars(value).items() if hasattr(value, "__dict__") else ()):
            yield name.encode()
            yield from _texts(part, depth - 1, seen)


def _some(items: Sequence[Any]) -> Sequence[Any]:
    """A few items of a sequence, evenly spread."""
    return items[:: max(1, len(items) // _ITEMS)]
