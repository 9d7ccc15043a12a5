"""The ranks' logs: their names, sizes and last lines."""

from __future__ import annotations

from pathlib import Path

LAST_LINES = 15
_TAIL_BYTES = 16_384


def log_name(rank: int) -> str:
    """File name of a rank's log, for its global rank."""
    return f"rank{rank}.log"


def size_bytes(path: Path) -> int:
    """Length of a log; 0 where the rank has not opened it yet."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def last_lines(path: Path) -> tuple[str, ...]:
    """The end of a log, at most ``LAST_LINES`` lines, blank ones at the end left out."""
    text = read_from(path, size_bytes(path) - _TAIL_BYTES)
    return tuple(text.rstrip().splitlines()[-LAST_LINES:])


def read_from(path: Path, offset: int) -> str:
    """Text of a log from a byte offset on; empty where there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, offset))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
