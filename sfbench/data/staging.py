"""``staged``: a file or folder that appears whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from sfbench.data.process import start_ticks

_PREFIX = ".partial-"
_OWNER = re.compile(r"(?P<node>[0-9a-f]{12})~(?P<pid>\d+)~(?P<ticks>\d+)~[0-9a-f]{8}")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


@contextmanager
def staged(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a sibling of ``path`` to write to; it becomes ``path`` by rename when the block ends.

    Write a file there or make a folder. A reader, a crash or a second job so never meets half of
    it. The sibling ends with the name of ``path``, for writers that look at the suffix. If the
    block raises, the sibling is removed; if the process was killed, the next ``staged`` of the
    same path on that machine removes it. A file replaces an older one. A folder does not: if
    another process completed the same folder first, that one stays and this one is removed.

    Raises ``FileNotFoundError`` if the block wrote nothing.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target)
    partial = target.with_name(f"{_PREFIX}{_owner()}-{target.name}")
    try:
        yield partial
        if not partial.exists():
            raise FileNotFoundError(f"nothing was written at {partial}, so {target} was not made")
        _rename(partial, target)
    finally:
        _remove(partial)


def _rename(partial: Path, target: Path) -> None:
    try:
        partial.replace(target)
    except OSError as error:
        if not (partial.is_dir() and error.errno in (errno.ENOTEMPTY, errno.EEXIST)):
            raise


def _remove_abandoned(target: Path) -> None:
    """Remove what killed processes of this machine left of the same path."""
    for path in target.parent.iterdir():
        name = path.name
        if name.startswith(_PREFIX) and name.endswith(f"-{target.name}"):
            owner = _OWNER.fullmatch(name[len(_PREFIX) : -len(target.name) - 1])
            if owner and owner["node"] == _node() and not _runs(owner):
                _remove(path)


def _runs(owner: re.Match[str]) -> bool:
    try:
        return start_ticks(int(owner["pid"])) == int(owner["ticks"])
    except ProcessLookupError:
        return False


def _owner() -> str:
    pid = os.getpid()
    return f"{_node()}~{pid}~{start_ticks(pid)}~{uuid.uuid4().hex[:8]}"


def _node() -> str:
    """Where process numbers mean the same: a container has its own, often on a shared disk."""
    name = f"{socket.gethostname()}/{_PID_NAMESPACE.readlink()}"
    return sha256(name.encode()).hexdigest()[:12]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
