"""How much room is left where a launch writes to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

SHARED_MEMORY = "/dev/shm"
FULL_BYTES = 1 << 20
"""Below this a place counts as full."""


def full(places: Iterable[str]) -> tuple[str, ...]:
    """Those of some folders in which no room is left, each file system once."""
    return tuple(place for place, free in _free(places) if free < FULL_BYTES)


def free_bytes(place: str) -> int | None:
    """Room that is left in a folder; None if there is no such folder."""
    return next((free for _, free in _free([place])), None)


def _free(places: Iterable[str]) -> Iterable[tuple[str, int]]:
    seen: set[int] = set()
    for place in places:
        try:
            system, device = os.statvfs(place), Path(place).stat().st_dev
        except OSError:  # the folder is gone: others tell
            continue
        if device not in seen:
            seen.add(device)
            yield place, system.f_bavail * system.f_frsize
