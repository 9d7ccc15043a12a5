"""The journal of what a script is about to change: a file of lines, undone from its end.

Each line tells how to undo one change, as things stood right after it. It is written before the
change is made, and cut off once that is undone: so undoing may be killed at any place and repeated.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from sfbench.guard.folders import remove_folder

Line = dict[str, Any]


def made(path: str) -> Line:
    """Nothing stood there before."""
    return {"made": path}


def kept(path: str, aside: str) -> Line:
    """What stood there is now elsewhere on the same file system."""
    return {"kept": path, "aside": aside}


def moved(source: str, path: str) -> Line:
    """It stood at the source before."""
    return {"moved": path, "source": source}


def folder(path: str) -> Line:
    """A folder of the guard's, to be removed when all is undone."""
    return {"folder": path}


def marked(path: str) -> Line:
    """The rights, owner, times and attributes that something has now."""
    state = os.lstat(path)
    attributes: dict[str, str] = {}
    with suppress(OSError):  # a file system without any
        for name in os.listxattr(path, follow_symlinks=False):
            value = os.getxattr(path, name, follow_symlinks=False)
            attributes[name] = base64.b64encode(value).decode()
    return {
        "marked": path,
        "mode": state.st_mode & 0o7777,
        "owner": [state.st_uid, state.st_gid],
        "times": [state.st_atime_ns, state.st_mtime_ns],
        "attributes": attributes,
    }


def restore(journal: Path) -> None:
    """Undo everything, then remove the journal. Waits until nobody writes it any more.

    Raises ``OSError`` if something cannot be put back: the journal then ends with that, and what
    was set aside stays where it is.
    """
    with journal.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = file.read().splitlines(keepends=True)
        end = sum(map(len, lines))
        for line in reversed(lines):
            end -= len(line)
            if line.endswith(b"\n"):  # else its writer was killed before the change was made
                _undo(json.loads(line))
            file.truncate(end)
    journal.unlink()


def _undo(line: Line) -> None:
    if "made" in line:
        remove(line["made"])
    elif "kept" in line:
        if os.path.lexists(line["aside"]):
            remove(line["kept"])
            os.rename(line["aside"], line["kept"])  # noqa: PTH104
    elif "moved" in line:
        if os.path.lexists(line["moved"]) and not os.path.lexists(line["source"]):
            os.rename(line["moved"], line["source"])  # noqa: PTH104
    elif "marked" in line:
        _mark(line)
    else:
        remove_folder(Path(line["folder"]))


def remove(path: str) -> None:
    """Remove a file or a folder with all in it; nothing may be there."""
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)  # noqa: PTH108


def _mark(line: Line) -> None:
    path = line["marked"]
    if not os.path.lexists(path):
        return
    there = {} if os.path.islink(path) else line["attributes"]  # noqa: PTH114
    with suppress(OSError):
        for name in set(os.listxattr(path, follow_symlinks=False)) - set(there):
            os.removexattr(path, name, follow_symlinks=False)
        for name, value in there.items():
            os.setxattr(path, name, base64.b64decode(value), follow_symlinks=False)
    state = os.lstat(path)
    if [state.st_uid, state.st_gid] != line["owner"]:
        os.chown(path, *line["owner"], follow_symlinks=False)
    if not os.path.islink(path):  # noqa: PTH114
        os.chmod(path, line["mode"])  # noqa: PTH101
    os.utime(path, ns=tuple(line["times"]), follow_symlinks=False)
