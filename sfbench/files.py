"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


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
