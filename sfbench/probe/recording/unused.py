"""Whether a DDP model that looks for unused parameters ever has some, and what the search costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from sfbench.probe.hooks.taps import Listener, Taps

LOOKS = 12
"""Forward passes that are watched."""
_NAMED = 3


class UnusedWatch:
    """Watches the first forwards of each DDP model with find_unused_parameters=True."""

    def __init__(self) -> None:
        self.searches: dict[int, Search] = {}
        self._listener: Listener | None = None

    def install(self, taps: Taps) -> None:
        """Patch DDP's way from forward to backward, where it searches."""
        self._listener = taps.wrap(
            DistributedDataParallel, "_post_forward", self._around_post_forward
        )

    def close(self) -> None:
        """Enough was seen: take the hooks away, those on parameters too."""
        if self._listener is not None:
            self._listener.leave()
        for search in self.searches.values():
            search.close()

    def updated(self) -> None:
        """An optimizer has been stepped: what has no gradient by now, stays without."""
        for search in self.searches.values():
            search.updated()

    def _around_post_forward(self, original: Any) -> Any:
        def post_forward(model: Any, output: Any) -> Any:
            if not model.find_unused_parameters or model.static_graph:
                return original(model, output)
            search = self.searches.get(id(model))
            if search is None:
                search = self.searches[id(model)] = Search(model)
            return search.timed(original, output)

        return post_forward


class Search:
    """One model's search for unused parameters."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._used: set[str] = set()
        self._handles = [
            parameter.register_post_accumulate_grad_hook(self._arrival(name))
            for name, parameter in model.module.named_parameters()
            if parameter.requires_grad
        ]
        self._names = {n for n, p in model.module.named_parameters() if p.requires_grad}
        self._times: list[float] = []
        self.looked = 0
        self.unused: list[str] = []

    @property
    def mean_s(self) -> float | None:
        """Time per forward, the first one left out; None: not measured."""
        times = self._times[1:]
        return sum(times) / len(times) if times else None

    def timed(self, original: Any, output: Any) -> Any:
        """Run the search; a stand-in for the reducer takes its time."""
        if not self._handles:
            return original(self._model, output)
        reducer = self._model.reducer
        self._model.reducer = _Timed(reducer, self._times)
        try:
            return original(self._model, output)
        finally:
            self._model.reducer = reducer

    def updated(self) -> None:
        """Note what was unused since the last update."""
        if self._handles and self._used:
            self.looked += 1
            self.unused += sorted(self._names - self._used)[: _NAMED - len(self.unused)]
            self._used.clear()
            if self.looked >= LOOKS:
                self.close()

    def close(self) -> None:
        """Watch no longer."""
        while self._handles:
            self._handles.pop().remove()

    def _arrival(self, name: str) -> Callable[[Any], None]:
        return lambda parameter: self._used.add(name)


class _Timed:
    """A reducer whose search is timed."""

    def __init__(self, reducer: Any, times: list[float]) -> None:
        self._original = reducer
        self._times = times

    def prepare_for_backward(self, tensors: Any) -> None:
        began = time.perf_counter()
        self._original.prepare_for_backward(tensors)
        self._times.append(time.perf_counter() - began)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)
