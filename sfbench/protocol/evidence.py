"""What a rank saw of a script while it ran, for the correctness checks. Standard library only.

Frozen values, gathered by ``sfbench.probe.recording`` in every rank, judged by
``sfbench.checks``. They hold plain numbers and text, so that they travel as JSON. A
``line`` is ``file.py:12``, a place in the script; empty if it could not be told.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_type_hints

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One pass over a loader."""

    order: tuple[int, ...]
    """The first indices that the sampler gave out; empty for an IterableDataset."""
    batches: int
    """Batches handed out."""
    ended: bool
    """The loader had no more. False: the script left it, or has not come to its end."""
    shortened: bool = False
    """The probe ended it early, after the same number of batches on all ranks."""
    cycled: bool = False
    """It was begun where the pass before had ended, by a loop that never ends by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """A DataLoader, or several that the script made in turn for the same data."""

    line: str
    trains: bool
    """Its batches lead to optimizer updates."""
    length: int | None
    """``len(loader)``; None if it has none (most IterableDatasets)."""
    dataset: str
    """Name of its class."""
    dataset_size: int | None
    dataset_digest: int
    """Differs if the datasets of two ranks hold different things, as far as can be seen."""
    sampler: str
    """Name of its class."""
    takes_all: bool
    """The sampler goes through the whole dataset on each rank."""
    shuffles: bool | None
    """Whether the sampler is meant to shuffle; None: unknown kind of sampler."""
    has_set_epoch: bool
    epochs: tuple[Epoch, ...] = ()
    indices: tuple[int, ...] = ()
    """Of the first samples of the first pass; empty if unknown."""
    contents: tuple[int, ...] = ()
    """Checksums of the same samples (or, with ``whole_batches``, of whole batches)."""
    labels: tuple[int, ...] = ()
    """Checksums of their whole numbers alone, which no augmentation changes; empty: none."""
    whole_batches: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A ``Subset``: ``random_split`` makes one for each part."""

    line: str
    parent: int
    """Which dataset it is a part of, numbered in the order of first use."""
    size: int
    sketch: tuple[int, ...]
    """The smallest places of its indices in a fixed random order, ascending: all or some hundreds.

    Sets are compared by them without carrying their members around."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file opened for writing, or the target of a torch.save."""

    path: str
    """Absolute."""
    line: str
    sync_point: int
    """How often all ranks had met (in collectives and the like) before."""
    setup: bool
    """Before the first optimizer update."""
    appends: bool = False
    saved: bool = False
    """By torch.save."""
    size_bytes: int | None = None
    """At the end; None: not known, or it is no longer there."""
    modified_s: float | None = None
    """When it was last written to, by the wall clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The first look at a file or folder during set-up."""

    path: str
    """Absolute."""
    line: str
    at_s: float
    """By the wall clock."""
    sync_point: int
    found: bool
    waited: bool
    """The rank had slept or taken a file lock before: it may have waited for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A torch.save whose keys carry the name of a wrapper."""

    path: str
    line: str
    keys: tuple[str, ...]
    """The first of them, nested ones dotted."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model in DistributedDataParallel."""

    line: str
    """Where it is called."""
    backwards: tuple[int, ...] = ()
    """Backward passes that led to each of the first updates."""
    synced: tuple[int, ...] = ()
    """How many of those averaged the gradients over the ranks."""
    looks_for_unused: bool = False
    """find_unused_parameters=True."""
    looked: int = 0
    """Backward passes that were watched for unused parameters."""
    unused: tuple[str, ...] = ()
    """Names of some parameters that were unused in one of them."""
    search_s: float | None = None
    """Mean time per forward of the search for unused parameters."""
    own_hook: bool = False
    """The script registered a communication hook: replicas may differ on purpose."""
    wrapped: str = ""
    """Where it was put into DistributedDataParallel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """An optimizer that was stepped."""

    name: str
    rate: float
    """Learning rate of its first parameter group, before any schedule."""
    scheduler: str | None = None
    scheduler_line: str = ""
    scheduler_steps: tuple[int, ...] = ()
    """Steps of the scheduler between the first updates."""
    scheduler_stepped_by: str = ""
    """The library that steps it once per rank on purpose; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvidence:
    """All that one rank saw."""

    rank: int
    host: str
    threads: int
    peers: tuple[int, ...]
    """Ranks of its data-parallel group, itself among them: they must train on other samples."""
    loaders: tuple[Loader, ...] = ()
    splits: tuple[Split, ...] = ()
    written: tuple[Written, ...] = ()
    reads: tuple[Read, ...] = ()
    saves: tuple[Save, ...] = ()
    states_saved: int = 0
    """torch.save calls that were given a state dict, right or wrong."""
    models: tuple[Model, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    updates: int = 0
    scaled: int = 0
    """Updates through a GradScaler."""
    skipped: tuple[int, ...] = ()
    """Which of those it skipped, counted from 0 (the first few hundred)."""
    weights: float | None = None
    """Checksum of the parameters that DDP keeps equal, or of all without DDP; None: sharded."""
    weights_outside: float | None = None
    """Checksum of trained parameters outside any DDP model; None: there are none."""
    exchanges_outside: bool = False
    """The script's own collectives carry enough to average the gradients that DDP does not."""
    joins: bool = False
    """Inside DDP's Join, which lets ranks run out of inputs one after the other."""
    takes_minimum: bool = False
    """The script took the least of one number over all ranks, as for a common number of steps."""
    sync_cost_s: float | None = None
    """Time per update that superfluous gradient syncs cost, if it was measured."""


def from_json(kind: type[T], value: dict[str, Any]) -> T:
    """A dataclass of this module from what ``dataclasses.asdict`` and JSON made of it."""
    hints = get_type_hints(kind)
    return kind(**{name: _restored(hints[name], part) for name, part in value.items()})


def _restored(hint: Any, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    inner = get_args(hint)[0]
    if dataclasses.is_dataclass(inner):
        return tuple(from_json(inner, part) for part in value)  # type: ignore[arg-type]
    return tuple(value)
