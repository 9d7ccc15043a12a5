"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from sfbench.common.errors import UsageError


def write_whole(path: Path, text: str) -> None:
    """Write a text file; its folder is made where there is none.

    A device or a pipe (``/dev/stderr``) is written to as it is; what a link leads to is replaced,
    not the link.
    """
    place = path.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists() and not place.is_file() and not place.is_dir():
        place.write_text(text, encoding="utf-8")
        return
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


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
