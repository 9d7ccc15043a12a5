"""The script's own collectives: counted, and answered locally while ranks run apart.

In the ``unsynced`` and ``solo`` rungs ranks do not meet, so a collective would wait for ever. There
all_reduce leaves its input, all_gather copies it to every place, a barrier returns at once, and
``async_op=True`` gets a finished work handle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from sfbench.probe.patches import Patches

_IN_PLACE = ("all_reduce", "broadcast", "reduce", "barrier", "monitored_barrier")
_OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")
_OTHERS = (
    "all_gather", "all_gather_into_tensor", "gather", "scatter", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "all_reduce_coalesced",
    "all_gather_coalesced",
)  # fmt: skip
COLLECTIVES = (*_IN_PLACE, *_OBJECTS, *_OTHERS)
"""Functions of ``torch.distributed`` in which ranks meet."""


class CollectiveHooks:
    """Stands in for the functions of ``torch.distributed`` that make ranks meet."""

    def __init__(self) -> None:
        self.local = False
        """While true, nothing is sent."""
        self.bytes_sent = 0
        self.calls = 0

    def install(self, patches: Patches) -> None:
        """Patch the collectives, and the rendezvous so that it uses the launcher's store."""
        for name in COLLECTIVES:
            if hasattr(dist, name):
                patches.wrap(dist, name, self._around(name))

    def _around(self, name: str) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def collective(*args: Any, **kwargs: Any) -> Any:
                if self.local:
                    return _local(name, args, kwargs)
                self.calls += 1
                self.bytes_sent += sum(_nbytes(a) for a in (*args, *kwargs.values()))
                return original(*args, **kwargs)

            return collective

        return make


def _nbytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return 0


class _Done:
    """A work handle of something already finished."""

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(None)
        return future


def _local(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if name not in _IN_PLACE:
        _copy(name, *args, **{k: v for k, v in kwargs.items() if k not in ("group", "async_op")})
    return _Done() if kwargs.get("async_op") else None


def _copy(name: str, *args: Any, **kwargs: Any) -> None:
    values = [*args, *kwargs.values()]
    if name in ("broadcast_object_list", "scatter", "scatter_object_list", "gather"):
        return
    if name == "gather_object":
        return
    target, source = values[0], values[1]
    if name == "all_gather_object":
        target[:] = [source] * len(target)
    elif name in ("reduce_scatter",):
        target.copy_(source[0])
    elif isinstance(target, list):
        for place in target:
            place.copy_(source[0] if isinstance(source, list) else source)
    else:
        _fill(target, source)


def _fill(target: torch.Tensor, source: torch.Tensor) -> None:
    """Repeat or cut the source to the length of the target."""
    flat, have = target.reshape(-1), source.reshape(-1)
    with torch.no_grad():
        for start in range(0, flat.numel(), have.numel()):
            part = flat[start : start + have.numel()]
            part.copy_(have[: part.numel()])
