"""The ranks' logs: their names, sizes and last lines."""

from __future__ import annotations

import re
from pathlib import Path

LAST_LINES = 15
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")
_COMMANDS = re.compile(r"^(\s*)(::|##\[)", re.MULTILINE)
"""GitHub Actions obeys lines of a log that begin like this."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
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
    text = plain(read_from(path, size_bytes(path) - _TAIL_BYTES))
    return tuple(text.rstrip().splitlines()[-LAST_LINES:])


def plain(text: str) -> str:
    """Without what steers a terminal or a build server: a script may print anything."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _COMMANDS.sub(r"\1.\2", _CONTROLS.sub("", _ESCAPES.sub("", lines)))


def read_from(path: Path, offset: int) -> str:
    """Text of a log from a byte offset on; empty where there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, offset))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
