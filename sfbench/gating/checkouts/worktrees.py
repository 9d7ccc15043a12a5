"""Worktrees of commits, registered for as long as a gate runs and no longer."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from sfbench.common.errors import UsageError
from sfbench.gating.checkouts.git import git
from sfbench.gating.checkouts.untracked import Untracked, link_neighbours, link_untracked

PREFIX = "sfbench-gate-"
"""Begins the name of the temporary folder that both checkouts lie in."""
LOCK = "running"
"""In that folder: a file that its gate keeps locked."""
MARK = "sfbench-host"
"""In git's own folder of a worktree: the machine whose temporary folder the checkout lies in."""


@contextlib.contextmanager
def worktree(found: Untracked, beside: Path, commit: str) -> Iterator[Path]:
    """Check out below the folder ``beside``, under the repository's own name; gone on any exit."""
    beside.mkdir()
    root = found.root
    folder = beside / (root.name or "root")
    try:
        git(root, "worktree", "add", "--detach", "--force", str(folder), commit)
        _mark(root, folder)
        link_untracked(found, folder)
        link_neighbours(root, folder)
        yield folder
    finally:
        _remove(root, folder)


def forget_leftovers(root: Path) -> None:
    """Remove worktrees of gates that were killed, with their temporary folders.

    As ``git worktree prune`` would, which takes a drive that is not mounted, or another machine's
    temporary folder, for a folder that is gone.
    """
    for own, folder in _registered(root):
        temporary = folder.parent.parent
        if not temporary.name.startswith(PREFIX) or _host_of(own) != _host():
            continue
        if not temporary.exists() or _is_left(temporary):
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(own, ignore_errors=True)


@contextlib.contextmanager
def alive(temporary: Path) -> Iterator[None]:
    """Mark a temporary folder as one of a gate that runs, however that may end."""
    with (temporary / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_left(temporary: Path) -> bool:
    """Whether its gate was killed: nobody holds the lock any more."""
    try:
        with (temporary / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held, or not made yet
        return False
    return True


def _remove(root: Path, folder: Path) -> None:
    # It fails if an interrupt left half a checkout, or none. The folder goes with the temporary
    # one around it, and what git knows of it goes here.
    with contextlib.suppress(UsageError):
        git(root, "worktree", "remove", "--force", "--force", str(folder))
    for own, registered in _registered(root):
        if registered == folder:
            shutil.rmtree(own, ignore_errors=True)


def _mark(root: Path, folder: Path) -> None:
    for own, registered in _registered(root):
        if registered == folder:
            (own / MARK).write_text(_host())


def _registered(root: Path) -> Iterator[tuple[Path, Path]]:
    """Of every worktree git's own folder, and the checkout, which may be gone."""
    common = root / git(root, "rev-parse", "--git-common-dir")
    for file in sorted(common.glob("worktrees/*/gitdir")):
        own = file.parent
        yield own, (own / file.read_text(errors="surrogateescape").rstrip("\n")).parent


def _host_of(own: Path) -> str | None:
    mark = own / MARK
    return mark.read_text() if mark.exists() else None


def _host() -> str:
    return socket.gethostname()
