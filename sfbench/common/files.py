"""Files that are written whole or not at all, and read only if they are files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sfbench.common.errors import UsageError

MOST_BYTES = 256 << 20
"""No document is larger: what is would be read for minutes, and is none."""


def read_text(path: Path) -> str:
    """The text of a file in UTF-8. Pipes and devices are not waited for: they have no end.

    Raises:
        UsageError: it is no plain file, or larger than any document.
        OSError, UnicodeDecodeError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise UsageError(f"{path}: {_kind(state.st_mode)}, give a file")
        if state.st_size > MOST_BYTES:
            raise UsageError(f"{path}: larger than {MOST_BYTES >> 20} MiB, this is no document")
        return file.read(MOST_BYTES).decode("utf-8")


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "this is a folder"
    return "this is a pipe" if stat.S_ISFIFO(mode) else "this is a device"


def write_whole(path: Path, text: str) -> None:
    """Write a text file; its folder is made if there is none.

    A device or a pipe (``/dev/stderr``) is written to as it is; what a link leads to is replaced,
    not the link.
    """
    place = path.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists() and not place.is_file() and not place.is_dir():
        _write_into(place, text)
        return
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def _write_into(place: Path, text: str) -> None:
    """Into a device or a pipe. A pipe that nobody reads is an error: it would be waited for."""
    descriptor = os.open(place, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def check_writable(folder: Path) -> None:
    """Refuse before anything is measured what could not be written afterwards.

    Raises:
        UsageError: the folder cannot be made, or is not writable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: the folder cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder}: this folder cannot be written to")
