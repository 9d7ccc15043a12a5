"""``distributed_loader``: every sample on one rank, in another order each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

from sfbench.data.ranks import world

T = TypeVar("T")


class EpochSampler(DistributedSampler[Any]):
    """A DistributedSampler that counts its own epochs: each pass has another order.

    ``set_epoch(k)`` still works, for a job that resumes: the next pass is epoch k.
    """

    def __iter__(self) -> Iterator[Any]:
        """This rank's indices for the epoch; the next pass is the next epoch."""
        indices = super().__iter__()
        self.set_epoch(self.epoch + 1)
        return indices


def distributed_loader(
    dataset: Dataset[T],
    batch_size: int,
    *,
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = True,
    num_workers: int = 0,
    **kwargs: Any,
) -> DataLoader[T]:
    """A DataLoader that gives each rank its own share of ``dataset``, in batches of ``batch_size``.

    ``batch_size`` is per rank. The order is drawn from ``seed`` and the number of passes begun, so
    every rank must begin the same passes (no ``next(iter(loader))`` on one rank alone). With
    ``drop_last`` all ranks have the same number of full batches; without, the shares are filled up
    with repeated samples, and the last batch may be short. Workers live across epochs and are
    seeded from ``seed``, the rank and their number (Python, torch and numpy); with no workers a
    random transform draws from the script's own generators. ``kwargs`` go to ``DataLoader``. Works
    before ``init_process_group`` if RANK and WORLD_SIZE are set, and outside a job.

    Raises ``ValueError`` if ``kwargs`` bring their own sampler, if ``dataset`` is an
    ``IterableDataset``, and if a rank would get no batch at all.
    """
    rank, size = world()
    _refuse_conflicts(dataset, kwargs)
    sampler = EpochSampler(
        dataset, num_replicas=size, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop_last
    )
    if batch_size < 1 or (drop_last and len(sampler) < batch_size):
        raise ValueError(
            f"batch_size={batch_size} gives no batch: each of {size} ranks has {len(sampler)} "
            "samples. Use a smaller batch, fewer ranks, or drop_last=False."
        )
    kwargs.setdefault("generator", torch.Generator().manual_seed(_rank_seed(seed, rank)))
    kwargs.setdefault("persistent_workers", num_workers > 0)
    kwargs.setdefault("pin_memory", torch.cuda.is_available())
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        drop_last=drop_last,
        num_workers=num_workers,
        **kwargs,
    )


def _refuse_conflicts(dataset: Dataset[Any], kwargs: dict[str, Any]) -> None:
    if isinstance(dataset, IterableDataset):
        raise ValueError(
            "An IterableDataset has no indices to share out: every rank would read all of it. Take "
            "the rank's share inside its __iter__ with sfbench.data.shard, and use DataLoader."
        )
    for name in ("sampler", "batch_sampler"):
        if kwargs.get(name) is not None:
            raise ValueError(
                f"{name}= conflicts with distributed_loader, which makes the sampler itself. Leave "
                "it out, or use DataLoader with a sampler that shares the samples out by rank."
            )


def _rank_seed(seed: int, rank: int) -> int:
    """Far apart for neighbouring ranks: a worker's seed is this pass's draw plus its number."""
    return int.from_bytes(sha256(f"{seed}/{rank}".encode()).digest()[:8], "big") >> 1
