"""Files that the script opens for writing, and what it reads while it sets up."""

from __future__ import annotations

import builtins
import dataclasses
import fcntl
import functools
import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sfbench.probe.hooks.taps import Listener, Taps
from sfbench.probe.recording.call_site import CallSite, guarded
from sfbench.protocol.evidence import Read, Written

_MOST_WRITTEN = 400
_MOST_READ = 2000
_WRITES = frozenset("wax")
_TO_WRITE = os.O_WRONLY | os.O_RDWR
_NAMELESS = os.O_TMPFILE
"""The path is a folder then, and what is opened is a file in it that nobody else can see."""
_NOT_DATA = ("/dev/", "/proc/", "/sys/")
# Caches of tools, which are made for several processes at once.
_LOCK = ".lock"
_CACHES = (
    "torchinductor_", "__pycache__", "/.triton/", "/matplotlib/", "/.nv/", "/.cache/torch/",
    "/.cache/huggingface/", "/.cache/wandb/",
)  # fmt: skip


class FileWatch:
    """Wraps open, os.open and the listing of folders.

    ``sync_point`` counts as in ``sync_points.py``.
    """

    def __init__(self, call_site: CallSite, sync_point: Callable[[], int], launch_dir: str) -> None:
        self._call_site = call_site
        self._sync_point = sync_point
        self._own = launch_dir
        self._inside = False
        self._waited = False
        self._early: list[Listener] = []
        """Those that listen only while the script sets up."""
        self.setup = True
        """Until the first optimizer update; afterwards nobody cares what is read."""
        self.on_written: Callable[[], None] | None = None
        """Called for each new file: what was seen has to outlive a crash."""
        self._written: dict[tuple[str, int], Written] = {}
        self._reads: dict[str, Read] = {}

    def install(self, taps: Taps) -> None:
        """Patch what opens and lists, and what waits."""
        opened = _Unbound(builtins.open, self._around_open)
        taps.replace(builtins, "open", opened)
        taps.replace(io, "open", opened)
        for owner, name, make in (
            (os, "listdir", self._around_list),
            (os, "scandir", self._around_list),
            (time, "sleep", self._around_wait),
            (fcntl, "flock", self._around_wait),
            (fcntl, "lockf", self._around_wait),
        ):
            self._early.append(taps.wrap(owner, name, _unbound(make)))
        taps.wrap(os, "open", _unbound(self._around_os_open))

    def trains(self) -> None:
        """Setting up is over."""
        self.setup = False
        while self._early:
            self._early.pop().leave()

    def saved(self, path: str) -> None:
        """A torch.save has this target, whether it stays or not."""
        self._write(path, appends=False, saved=True)

    def written(self, *, ended: bool) -> tuple[Written, ...]:
        """All files that were opened for writing; with sizes and times if all has ended."""
        written = self._written.values()
        return tuple(_as_it_is(w) if ended else w for w in written)

    def reads(self) -> tuple[Read, ...]:
        """What was read while the script set up."""
        return tuple(self._reads.values())

    # -- hooks -----------------------------------------------------------------------------------

    def _around_open(self, original: Any) -> Any:
        def open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            # What an opener opens is seen where it does so.
            plain = isinstance(file, str | os.PathLike) and kwargs.get("opener") is None
            if self._inside or not plain or not isinstance(mode, str):
                return original(file, mode, *args, **kwargs)
            writes = not _WRITES.isdisjoint(mode)
            if not writes and not self._reading():
                return original(file, mode, *args, **kwargs)
            return self._seen(lambda: original(file, mode, *args, **kwargs), file, writes, mode)

        return open_file

    def _around_os_open(self, original: Any) -> Any:
        def open_file(path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
            writes = bool(flags & _TO_WRITE)
            named = flags & _NAMELESS != _NAMELESS
            plain = isinstance(path, str | os.PathLike) and kwargs.get("dir_fd") is None and named
            if self._inside or not plain or not (writes or self._reading()):
                return original(path, flags, *args, **kwargs)
            mode = "a" if flags & os.O_APPEND else "w"
            return self._seen(lambda: original(path, flags, *args, **kwargs), path, writes, mode)

        return open_file

    def _around_list(self, original: Any) -> Any:
        def listing(path: Any = ".") -> Any:
            if self._inside or not self._reading() or not isinstance(path, str | os.PathLike):
                return original(path)
            return self._seen(lambda: original(path), path, False, "r")

        return listing

    def _around_wait(self, original: Any) -> Any:
        def wait(*args: Any) -> Any:
            self._waited = True
            return original(*args)

        return wait

    # -- notes -----------------------------------------------------------------------------------

    def _reading(self) -> bool:
        return self.setup and len(self._reads) < _MOST_READ

    def _seen(self, work: Callable[[], Any], file: Any, writes: bool, mode: str) -> Any:
        """Do it, and note it: a read with the time before it, a write only if it succeeded."""
        path, at_s = _absolute(file), time.time()
        try:
            value = work()
        except OSError:
            if not writes:
                self._read(path, at_s, found=False)
            raise
        if writes:
            self._write(path, appends="a" in mode, saved=False)
        else:
            self._read(path, at_s, found=True)
        return value

    def _write(self, path: str, *, appends: bool, saved: bool) -> None:
        key = (path, self._sync_point())
        full = len(self._written) >= _MOST_WRITTEN
        if key in self._written or full or self._is_no_data(path) or guarded():
            return
        self._written[key] = Written(
            path=path,
            line=self._call_site.line(),
            sync_point=key[1],
            setup=self.setup,
            appends=appends,
            saved=saved,
        )
        if self.on_written is not None and self.setup:
            self._inside = True
            try:
                self.on_written()
            finally:
                self._inside = False

    def _read(self, path: str, at_s: float, *, found: bool) -> None:
        before = self._reads.get(path)
        if before is not None and (before.found or not found):
            return
        if self._is_no_data(path) or guarded():
            return
        self._reads[path] = Read(
            path=path,
            line=self._call_site.line(),
            at_s=at_s,
            sync_point=self._sync_point(),
            found=found,
            waited=self._waited,
        )

    def _is_no_data(self, path: str) -> bool:
        own = path.startswith((self._own, *_NOT_DATA)) or path.endswith(_LOCK)
        return own or any(cache in path for cache in _CACHES)


class _Unbound:
    """Stands in for a built-in function.

    Unlike a Python function it does not turn into a method as an attribute of a class, and it
    pickles by its name, as what it stands for does.
    """

    def __init__(self, original: Any, make: Callable[[Any], Any]) -> None:
        functools.update_wrapper(self, original)
        self._call = make(original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __reduce__(self) -> str:
        return str(self.__name__)  # type: ignore[attr-defined]


def _unbound(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda original: _Unbound(original, make)


def _absolute(file: Any) -> str:
    path = os.fspath(file)
    return str(Path(os.fsdecode(path)).absolute())


def _as_it_is(written: Written) -> Written:
    try:
        found = Path(written.path).stat()
    except OSError:
        return written
    return dataclasses.replace(
        written, size_bytes=found.st_size, modified_s=found.st_mtime_ns / 1e9
    )
