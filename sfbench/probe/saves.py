"""Holds back what the script saves: a benchmark must not overwrite checkpoints."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from sfbench.common.schema import SaveInfo
from sfbench.probe.events import Aside, Event
from sfbench.probe.patches import Patches

_KEYS_KEPT = 400


class SaveHooks:
    """Stands in for ``torch.save``; remembers what would have been written.

    Until ``trains`` says that training has begun, new files are written: they are data, and the
    script may read them again.
    """

    def __init__(
        self,
        feed: Callable[[Event], None],
        rank: int,
        *,
        allow: bool,
        trains: Callable[[], bool] = lambda: True,
    ) -> None:
        self._feed = feed
        self._rank = rank
        self._allow = allow
        self._trains = trains
        self._withheld: set[str] = set()
        self.saves: list[SaveInfo] = []

    def install(self, patches: Patches) -> None:
        """Patch torch.save, and the renames that often follow one."""
        patches.wrap(torch, "save", self._around_save)
        if not self._allow:
            patches.wrap(os, "replace", self._around_rename)
            patches.wrap(os, "rename", self._around_rename)
            patches.wrap(shutil, "move", self._around_rename)

    def _around_save(self, original: Any) -> Any:
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            began = time.perf_counter()
            path = path_of(f)
            # A save into memory harms nobody, and the script may use the bytes.
            write = self._allow or path is None or (not self._trains() and _is_new(f))
            if write:
                original(obj, f, *args, **kwargs)
            elif path is not None:
                self._withheld.add(path)
            if path is not None:
                keys = tuple(_keys(obj))
                info = SaveInfo(rank=self._rank, path=path, keys=keys, written=write)
                self.saves.append(info)
            self._feed(Aside(began, time.perf_counter()))

        return save

    def _around_rename(self, original: Any) -> Any:
        def rename(src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(src, str | os.PathLike) and _absolute(src) in self._withheld:
                return dst
            return original(src, dst, *args, **kwargs)

        return rename


def _is_new(f: Any) -> bool:
    """A file that does not exist, or that the script has opened anew itself."""
    return not isinstance(f, str | os.PathLike) or not Path(os.fspath(f)).exists()


def path_of(f: Any) -> str | None:
    """Absolute path of what torch.save was given; None where it is no file."""
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
