"""The ranks' logs: their names, sizes and last lines."""

from __future__ import annotations

from pathlib import Path

from sfbench.common.plain_text import LINE, plain
from sfbench.launch import stacks

LAST_LINES = 15
_TAIL_BYTES = 65_536


def log_name(rank: int) -> str:
    """File name of a rank's log, for its global rank."""
    return f"rank{rank}.log"


def size_bytes(path: Path) -> int:
    """Length of a log; 0 if the rank has not opened it yet."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def last_lines(path: Path) -> tuple[str, ...]:
    """The end of a log, at most ``LAST_LINES`` lines, blank ones at the end left out.

    The tool's own frames in tracebacks, and what it said itself, are left out as well.
    """
    lines = stacks.without_own(plain(tail(path), _TAIL_BYTES)).rstrip().splitlines()
    others = [plain(line, LINE) for line in lines if not line.startswith("sfbench: ")]
    return tuple(others[-LAST_LINES:])


def tail(path: Path) -> str:
    """The end of a log as it is."""
    return read_from(path, size_bytes(path) - _TAIL_BYTES)


def read_from(path: Path, offset: int) -> str:
    """Text of a log from a byte offset on; empty if there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, offset))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
