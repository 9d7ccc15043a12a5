"""Sets aside what a script is about to change, before it is changed.

Told of each change by what watches the script's system calls. Answers None if the call may go
on, 0 if it was made here, or the number of the error with which it has to fail.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sfbench.guard import undo
from sfbench.guard.mounts import is_below

Answer = int | None
_CLONE = 0x40049409
"""``FICLONE``: share a file's blocks until one of the two is written."""


class Journal:
    """Of one launch. ``place`` gives a folder on the file system of a path, if one may be made;
    ``mount`` the mount that a path lies on."""

    def __init__(
        self, path: Path, place: Callable[[str], str], mount: Callable[[str], str]
    ) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._place = place
        self._mount = mount
        self._folders: dict[str, str] = {}
        self._mine: dict[str, bool] = {}
        self._marked: set[str] = set()
        self._count = 0

    def close(self) -> None:
        """From now on it may be undone."""
        os.close(self._file)

    def opened(self, path: str, *, truncates: bool, creates: bool, exclusive: bool) -> Answer:
        """A file is opened for writing."""
        if self._is_mine(path):
            return None
        state = _state(path)
        if state is None:
            return self.making(path) if creates else None
        if (creates and exclusive) or not stat.S_ISREG(state.st_mode):
            return None
        if not os.access(path, os.W_OK):
            return None  # it fails by itself
        return self._set_aside(path, state, copies=not truncates)

    def making(self, path: str) -> Answer:
        """Something is made where nothing is."""
        if not self._is_mine(path) and _state(path) is None:
            self._note_parent(path)
            self._write(undo.made(path))
            self._own(path, True)
        return None

    def linking(self, old: str, path: str) -> Answer:
        """A file gets another name, which leads to the same content."""
        mine = self._is_mine(old)
        if _state(path) is None:
            self._note_parent(path)
            self._write(undo.made(path))
            self._own(path, mine)
        return None

    def removing(self, path: str, *, folder: bool) -> Answer:
        """A file, or an empty folder, is removed."""
        state = _state(path)
        if state is None or stat.S_ISDIR(state.st_mode) != folder:
            return None
        if folder and any(os.scandir(path)):
            return None
        if self._is_mine(path):
            self._forget(path)
            return None
        return self._away(path) or 0

    def renaming(self, source: str, path: str, *, replaces: bool) -> Answer:
        """Something gets another place, and may take that of something else."""
        state, other = _state(source), _state(path)
        if state is None or self._mount(source) != self._mount(path):
            return None
        if other is not None and not _may_replace(path, state, other, replaces=replaces):
            return None
        if is_below(path, source):
            return None
        aside = None
        if other is not None and not self._is_mine(path):
            aside = self._aside(path)
            error = self._away(path, aside)
            if error:
                return error
        for each in (source, path):
            self._note_parent(each)
        self._write(undo.moved(source, path))
        try:
            os.rename(source, path)  # noqa: PTH104
        except OSError as error:
            if aside is not None:
                os.rename(aside, path)  # noqa: PTH104
            return error.errno or errno.EIO
        self._carry(source, path)
        return 0

    def changing(self, path: str) -> Answer:
        """Rights, owner, times or attributes change."""
        if not self._is_mine(path) and _state(path) is not None:
            self._note(path)
        return None

    # -- what is whose ---------------------------------------------------------------------------

    def _is_mine(self, path: str) -> bool:
        """Whether the script made it: itself, or a folder above it."""
        while path not in self._mine:
            above = os.path.dirname(path)  # noqa: PTH120
            if above == path:
                return False
            path = above
        return self._mine[path]

    def _own(self, path: str, mine: bool) -> None:
        self._forget(path)
        self._mine[path] = mine

    def _forget(self, path: str) -> None:
        for each in [known for known in self._mine if is_below(known, path)]:
            del self._mine[each]

    def _carry(self, source: str, path: str) -> None:
        mine = self._is_mine(source)
        inner = {known: of for known, of in self._mine.items() if is_below(known, source)}
        self._forget(source)
        self._own(path, mine)
        for known, of in inner.items():
            self._mine[path + known[len(source) :]] = of
        # Something else stands there now, which is not noted yet.
        for place in (source, path):
            self._unmark(place)

    # -- setting aside ---------------------------------------------------------------------------

    def _set_aside(self, path: str, state: os.stat_result, *, copies: bool) -> Answer:
        aside = self._aside(path)
        error = self._away(path, aside)
        if error:
            return error
        try:
            _stand_in(aside, path, state, copies=copies)
        except OSError as failed:
            with suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108
            os.rename(aside, path)  # noqa: PTH104
            return failed.errno or errno.EIO
        self._own(path, True)
        return None

    def _away(self, path: str, aside: str | None = None) -> int:
        """Move something to where it is kept; 0, or the error where it cannot be."""
        try:
            aside = aside or self._aside(path)
            self._note_parent(path)
            self._write(undo.kept(path, aside))
            os.rename(path, aside)  # noqa: PTH104
        except PermissionError:
            return errno.EROFS  # it cannot be kept, so it may not be touched
        except OSError as error:
            return error.errno or errno.EIO
        self._forget(path)
        self._unmark(path)
        return 0

    def _aside(self, path: str) -> str:
        mount = self._mount(path)
        if mount not in self._folders:
            place = self._place(path)
            self._write(undo.folder(place))
            os.mkdir(place, 0o700)  # noqa: PTH102
            self._folders[mount] = place
        self._count += 1
        return f"{self._folders[mount]}/{self._count}"

    def _note_parent(self, path: str) -> None:
        parent = os.path.dirname(path)  # noqa: PTH120
        if not self._is_mine(parent):
            self._note(parent)

    def _note(self, path: str) -> None:
        if path not in self._marked and _state(path) is not None:
            self._marked.add(path)
            self._write(undo.marked(path))

    def _unmark(self, path: str) -> None:
        self._marked = {known for known in self._marked if not is_below(known, path)}

    def _write(self, line: undo.Line) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def _state(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _may_replace(
    path: str, state: os.stat_result, other: os.stat_result, *, replaces: bool
) -> bool:
    """Whether a rename over something succeeds and changes anything."""
    if not replaces or (state.st_dev, state.st_ino) == (other.st_dev, other.st_ino):
        return False
    folder = stat.S_ISDIR(other.st_mode)
    return stat.S_ISDIR(state.st_mode) == folder and not (folder and any(os.scandir(path)))


def _stand_in(aside: str, path: str, state: os.stat_result, *, copies: bool) -> None:
    """A file like the one set aside, for the script to write to."""
    with open(path, "xb") as new:  # noqa: PTH123
        if copies:
            with open(aside, "rb") as old:  # noqa: PTH123
                try:
                    fcntl.ioctl(new.fileno(), _CLONE, old.fileno())
                except OSError:
                    shutil.copyfileobj(old, new, 1 << 20)
        with suppress(PermissionError):
            os.fchown(new.fileno(), state.st_uid, state.st_gid)
        os.fchmod(new.fileno(), state.st_mode & 0o7777)
    with suppress(OSError):
        for name in os.listxattr(aside):
            os.setxattr(path, name, os.getxattr(aside, name))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
