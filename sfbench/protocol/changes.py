"""What a launch builds otherwise than the script says. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

Argument = tuple[str, int | bool]
"""Name and value of a constructor's argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Arguments to put in where the script makes its training loaders and wraps its model."""

    loader: tuple[Argument, ...] = ()
    """Of DataLoader."""
    loader_lines: tuple[str, ...] = ()
    """Lines that make the loaders meant, as ``train.py:12``; loaders of other lines stay."""
    model: tuple[Argument, ...] = ()
    """Of DistributedDataParallel."""
    batch_factor: int = 1
    """The training loaders' batches are so many times as large."""
    compress: bool = False
    """Gradients are sent as bf16."""
    sync_every: int = 1
    """Of so many backward passes of a model only the last averages gradients."""
    freeze: bool = False
    """What exists when training begins is left out of garbage collection."""
