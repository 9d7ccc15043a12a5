"""``sfbench.batches``: tells sfbench where a hand-written loop gets its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Batches(Generic[T]):
    """An endless iterator over the results of ``get_batch``. The probe hooks ``__next__``."""

    def __init__(self, get_batch: Callable[[], T]) -> None:
        self._get_batch = get_batch

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._get_batch()


def batches(get_batch: Callable[[], T]) -> Batches[T]:
    """Iterate over ``get_batch()`` for ever, visibly to sfbench.

    For loops without a DataLoader: ``for x, y in batches(get_batch): ...``. Outside a sweep it does
    nothing else. ``get_batch`` may raise StopIteration to end the loop. The samples of a batch are
    the leading dimension of its first tensor.
    """
    return Batches(get_batch)
