"""Folders named after their owner: what a killed command left, the next one removes."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from sfbench.data.process import start_ticks

_PREFIX = "sfbench-own-"
_KEPT = ".kept"


def owner() -> str:
    """This process, as no other has ever been: machine, number and start."""
    return f"{_node()}-{os.getpid()}-{start_ticks(os.getpid())}"


def is_dead(text: str) -> bool:
    """Whether the process that ``owner`` named so has ended. False for what it never gave."""
    parts = text.split("-")
    if len(parts) != 3 or parts[0] != _node() or not (parts[1] + parts[2]).isdecimal():
        return False  # a folder may be shared by machines, each with processes of its own
    try:
        return start_ticks(int(parts[1])) != int(parts[2])
    except ProcessLookupError:
        return True


@contextmanager
def scratch(purpose: str) -> Iterator[Path]:
    """A temporary folder; gone afterwards, and with the next one if this process is killed."""
    folder = new_scratch(purpose)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_scratch(purpose: str) -> Path:
    """The same, for the caller to remove."""
    top = Path(tempfile.gettempdir())
    remove_dead(top)
    folder = top / f"{_PREFIX}{owner()}-{purpose}-{uuid.uuid4().hex[:6]}"
    folder.mkdir(mode=0o700)
    return folder


def keep(folder: Path) -> None:
    """Let a temporary folder stay for the person to read: no later command removes it."""
    (folder / _KEPT).touch()


def is_kept(folder: Path) -> bool:
    """Whether a temporary folder has to stay."""
    return (folder / _KEPT).exists()


def remove_dead(top: Path) -> None:
    """Remove what killed commands of this user left in a temporary folder."""
    for folder in top.glob(f"{_PREFIX}*"):
        text = "-".join(folder.name.removeprefix(_PREFIX).split("-")[:3])
        if folder.is_symlink() or not is_dead(text) or is_kept(folder):
            continue
        if folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


def _node() -> str:
    """Where process numbers mean the same."""
    name = f"{socket.gethostname()}/{Path('/proc/self/ns/pid').readlink()}"
    return sha256(name.encode()).hexdigest()[:8]
