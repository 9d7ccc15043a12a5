"""What torch.save is given: keys that carry the name of a wrapper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sfbench.probe.hooks.saves import path_of
from sfbench.probe.hooks.taps import Taps
from sfbench.probe.recording.call_site import CallSite
from sfbench.protocol.evidence import Save

_DEPTH = 5
_KEPT = 3
_COMPILED = "_orig_mod"
_AVERAGED = "n_averaged"
"""Key of torch's AveragedModel, which keeps its model as ``module`` and expects it back so."""


class StateWatch:
    """Wraps torch.save."""

    def __init__(
        self,
        call_site: CallSite,
        models: Iterable[DistributedDataParallel],
        on_save: Callable[[str], None],
    ) -> None:
        self._call_site = call_site
        self._models = models
        self._on_save = on_save
        self.saves: list[Save] = []
        self.states = 0

    def install(self, taps: Taps) -> None:
        """Patch torch.save."""
        taps.wrap(torch, "save", self._around_save)

    def _around_save(self, original: Any) -> Any:
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            path = path_of(f)
            if path is not None:
                self._on_save(path)
                self._look(obj, path)
            original(obj, f, *args, **kwargs)

        return save

    def _look(self, obj: Any, path: str) -> None:
        names = {name for model in self._models for name in _names(model.module)}
        states = list(_states(obj, "", _DEPTH))
        self.states += bool(states)
        wrong = [key for prefix, state in states for key in wrapped_keys(prefix, state, names)]
        if wrong and all(save.path != path for save in self.saves):
            line = self._call_site.line()
            save = Save(path=path, line=line, keys=tuple(wrong[:_KEPT]), count=len(wrong))
            self.saves.append(save)


def wrapped_keys(prefix: str, state: Any, names: set[str]) -> Iterator[str]:
    """Dotted keys of a saved state that name a wrapper.

    ``names``: parameters and buffers of the models inside DDP. A model may have a part of its own
    that is called ``module``: keys that stand in ``names`` as they are, are right.
    """
    if isinstance(state, nn.Module):
        yield f"{prefix or 'the object'} ({type(state).__name__} itself)"
        return
    keys = [key for key in state if isinstance(key, str)]
    averaged = _AVERAGED in state
    if not names and not all(key.startswith("module.") for key in keys):
        names = {"."}  # no model to compare with, and not all of it is wrapped: the script's names
    for key in keys:
        parts = key.split(".")
        if averaged and parts[0] == "module":
            parts = parts[1:]
        if _COMPILED in parts or _is_wrapped(parts, names):
            yield f"{prefix}{key}"


def _is_wrapped(parts: Sequence[str], names: set[str]) -> bool:
    """Whether some part ``module`` is not the model's own."""
    for i, part in enumerate(parts[:-1]):
        if part == "module":
            outer = any(".".join(parts[j:]) in names for j in range(i + 1))
            inner = not names or ".".join(parts[i + 1 :]) in names
            if inner and not outer:
                return True
    return False


def _names(module: Any) -> Iterator[str]:
    for name, _ in module.named_parameters(remove_duplicate=False):
        yield name.replace(f"{_COMPILED}.", "")
    for name, _ in module.named_buffers(remove_duplicate=False):
        yield name.replace(f"{_COMPILED}.", "")


def _states(obj: Any, prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    """All state dicts, and wrapped models saved whole, in an object, with their dotted place."""
    if isinstance(obj, DistributedDataParallel):
        yield prefix.rstrip("."), obj
    elif isinstance(obj, Mapping):
        if any(isinstance(value, torch.Tensor) for value in obj.values()):
            yield prefix, obj
        if depth > 0:
            for key, value in obj.items():
                yield from _states(value, f"{prefix}{key}.", depth - 1)
    elif isinstance(obj, list | tuple) and depth > 0 and len(obj) < 100:
        for place, value in enumerate(obj):
            yield from _states(value, f"{prefix}{place}.", depth - 1)
