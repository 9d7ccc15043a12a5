"""Times what the script saves, so that it is priced apart from the step.

It is written as the script says: the launch's guard keeps it off the user's files.
"""

from __future__ import annotations

import functools
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from sfbench.common.schema import SaveInfo
from sfbench.probe.hooks.events import Event, Excluded
from sfbench.probe.hooks.taps import Taps

_KEYS_KEPT = 400


class SaveHooks:
    """Wraps ``torch.save``, and the copies made of what it wrote; remembers what was saved."""

    def __init__(self, feed: Callable[[Event], None], rank: int, *, allow: bool) -> None:
        """``allow``: what is written stays when the launch is over."""
        self._feed = feed
        self._rank = rank
        self._allow = allow
        self._paths: set[str] = set()
        self.saves: list[SaveInfo] = []

    def install(self, taps: Taps) -> None:
        """Patch torch.save, and the copy that often follows one."""
        taps.wrap(torch, "save", self._around_save)
        taps.wrap(shutil, "copyfile", self._around_copy)

    def _around_save(self, original: Any) -> Any:
        @functools.wraps(original)
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            began = time.perf_counter()
            original(obj, f, *args, **kwargs)
            path = path_of(f)
            if path is not None:
                self._paths.add(path)
                keys = tuple(_keys(obj))
                self.saves.append(
                    SaveInfo(rank=self._rank, path=path, keys=keys, written=self._allow)
                )
            self._feed(Excluded(began, time.perf_counter()))

        return save

    def _around_copy(self, original: Any) -> Any:
        @functools.wraps(original)
        def copyfile(src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
            saved = path_of(src) in self._paths
            began = time.perf_counter()
            copy = original(src, dst, *args, **kwargs)
            if saved:
                self._paths.add(str(path_of(dst)))
                self._feed(Excluded(began, time.perf_counter()))
            return copy

        return copyfile


def path_of(f: Any) -> str | None:
    """Absolute path of what torch.save was given; None if it is no file."""
    if isinstance(f, str | os.PathLike):
        return _absolute(f)
    name = getattr(f, "name", None)
    return _absolute(name) if isinstance(name, str) else None


def _absolute(path: Any) -> str:
    return str(Path(os.fspath(path)).absolute())


def _keys(obj: Any, prefix: str = "") -> list[str]:
    """Dotted keys of nested dicts, up to a few hundred."""
    found: list[str] = []
    if isinstance(obj, Mapping):
        for key, value in obj.items():
            found.append(f"{prefix}{key}")
            found.extend(_keys(value, f"{prefix}{key}."))
            if len(found) > _KEYS_KEPT:
                break
    return found[:_KEYS_KEPT]
