"""``shard``: this rank's share of a sequence."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TypeVar

from sfbench.data.ranks import world

T = TypeVar("T")


def shard(seq: Sequence[T], *, drop_last: bool = False) -> Sequence[T]:
    """Every world-size-th item of ``seq``, from this rank's number on.

    All ranks' shares together are ``seq``, each item once. They differ in length by at most one;
    with ``drop_last`` the rest is left out and all are equally long, which a loop with collectives
    needs. Inside the worker of a DataLoader over an ``IterableDataset`` the rank's share is shared
    out once more among its workers, as each of them would else read all of it.

    ``seq`` may be whatever slices with a step: a list, a range, an array, a tensor.
    """
    index, count = _slot()
    length = len(seq) - len(seq) % count if drop_last else len(seq)
    return seq[index:length:count]


def _slot() -> tuple[int, int]:
    """(number, count) of this share: ranks, or ranks times workers."""
    rank, size = world()
    data = sys.modules.get("torch.utils.data")
    worker = data.get_worker_info() if data is not None else None
    if data is None or worker is None or not isinstance(worker.dataset, data.IterableDataset):
        return rank, size
    # Ranks first: however many workers a rank has, the first items spread over all ranks.
    return rank + size * worker.id, size * worker.num_workers
