"""Strong scaling: the loader's batch is the global batch divided by the ranks."""

from __future__ import annotations

from typing import Any

from torch.utils.data import BatchSampler, DataLoader

from sfbench.probe.patches import Patches


class BatchSizeHooks:
    """Overrides batch_size where the script makes loaders and batch samplers."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size

    def install(self, patches: Patches) -> None:
        """Patch the constructors of DataLoader and BatchSampler."""
        patches.wrap(DataLoader, "__init__", self._around_loader)
        patches.wrap(BatchSampler, "__init__", self._around_sampler)

    def _around_loader(self, original: Any) -> Any:
        def init(loader: Any, dataset: Any, batch_size: Any = 1, *args: Any, **kwargs: Any) -> None:
            own_batches = batch_size is None or kwargs.get("batch_sampler") is not None
            size = batch_size if own_batches else self._batch_size
            original(loader, dataset, size, *args, **kwargs)

        return init

    def _around_sampler(self, original: Any) -> Any:
        def init(sampler: Any, inner: Any, batch_size: Any, drop_last: Any) -> None:
            original(sampler, inner, self._batch_size, drop_last)

        return init
