"""Strong scaling: the loader's batch is the global batch divided by the ranks."""

from __future__ import annotations

import inspect
from typing import Any

from torch.utils.data import BatchSampler, DataLoader

from sfbench.probe.hooks.taps import Taps


class BatchSizeHooks:
    """Overrides batch_size where the script makes loaders and batch samplers."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size

    def install(self, taps: Taps) -> None:
        """Patch the constructors of DataLoader and BatchSampler."""
        taps.wrap(DataLoader, "__init__", self._around_loader)
        taps.wrap(BatchSampler, "__init__", self._around_sampler)

    def _around_loader(self, original: Any) -> Any:
        signature = inspect.signature(original)

        def init(*args: Any, **kwargs: Any) -> None:
            given = signature.bind(*args, **kwargs).arguments
            own_batches = given.get("batch_size", 1) is None or given.get("batch_sampler")
            self._call(original, signature, args, kwargs, override=not own_batches)

        return init

    def _around_sampler(self, original: Any) -> Any:
        signature = inspect.signature(original)

        def init(*args: Any, **kwargs: Any) -> None:
            self._call(original, signature, args, kwargs, override=True)

        return init

    def _call(
        self,
        original: Any,
        signature: inspect.Signature,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        override: bool,
    ) -> None:
        bound = signature.bind(*args, **kwargs)
        if override:
            bound.arguments["batch_size"] = self._batch_size
        original(*bound.args, **bound.kwargs)
