"""Which guards there are on this machine, and what they left where they were killed.

Each guard has a small file in the user's state folder, which names the folders that it made, and a
lock that its processes hold for as long as one of them lives. It goes with the guard. One whose
lock nobody holds tells the next command what has to be put back and removed.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sfbench.guard import undo
from sfbench.guard.folders import remove_folder

_PLACE = Path("sfbench") / "guards"
TIDYING = "tidying"
"""A lock: one command tidies at a time."""


def state_folder() -> Path:
    """Where guards are registered: the user's own, the same for every command.

    Raises ``OSError`` if no place can be written to and locked.
    """
    given = os.environ.get("XDG_STATE_HOME")
    homes = [Path(given)] if given else []
    with suppress(RuntimeError):  # no home
        homes.append(Path.home() / ".local" / "state")
    homes.append(Path(tempfile.gettempdir()) / f"sfbench-state-{os.getuid()}")
    for home in homes:
        with suppress(OSError):
            return _usable(home / _PLACE)
    raise PermissionError(f"{homes[0]}: no folder to note there what has to be put back")


class Registered:
    """The file and the lock of one guard."""

    def __init__(self, path: Path, lock: int) -> None:
        """``lock``: open descriptor of the lock, which is held by who has it."""
        self._path = path
        self.lock = lock
        self._folders: list[str] = []

    @classmethod
    def new(cls) -> Registered:
        """Register a guard. Raises ``OSError`` if it cannot be."""
        path = state_folder() / f"{uuid.uuid4().hex}.json"
        lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return cls(path, lock)

    @property
    def path(self) -> Path:
        """The file's."""
        return self._path

    def add(self, folder: Path) -> None:
        """Note a folder before it is made."""
        self._folders.append(str(folder))
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps({"folders": self._folders}))
        part.replace(self._path)

    @property
    def journal(self) -> Path:
        """Where what is set aside is noted, if anything is."""
        return self._path.with_suffix(".journal")

    def remove(self) -> None:
        """Put back what was set aside, and remove the folders and what is known of them.

        Raises ``OSError`` if something cannot be put back; all that is known stays then.
        """
        _undo(self._path, self._folders)

    def close(self) -> None:
        """Let go of the lock, as far as this process holds it."""
        os.close(self.lock)


def tidy() -> tuple[str, ...]:
    """Put back and remove what guards of dead processes left; what could not be, is told."""
    told: list[str] = []
    try:
        folder = state_folder()
    except OSError:  # nothing can have been registered
        return ()
    with _held(folder / TIDYING):
        for lock in sorted(folder.glob("*.lock")):
            try:
                _tidy(lock)
            except (OSError, ValueError, KeyError, TypeError) as error:
                told.append(f"{lock}: what a killed command left cannot be tidied: {error}")
    return tuple(told)


def _tidy(lock: Path) -> None:
    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # it lives
        return
    else:
        path = lock.with_suffix(".json")
        _undo(path, json.loads(path.read_text())["folders"] if path.exists() else [])
    finally:
        os.close(descriptor)


def _undo(path: Path, folders: Sequence[str]) -> None:
    journal = path.with_suffix(".journal")
    if journal.exists():
        undo.restore(journal)
    for folder in folders:
        remove_folder(Path(folder))
    for suffix in (".json", ".part", ".lock"):
        path.with_suffix(suffix).unlink(missing_ok=True)


def _usable(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder}: it is another user's")
    with _held(folder / TIDYING):
        return folder


@contextmanager
def _held(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
