"""What commands share: lines on stderr, how stdout looks, whether a place can be written to."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sfbench.errors import UsageError


def say(text: str) -> None:
    """To the person at the terminal, not to what reads the result."""
    sys.stderr.write(f"{text}\n")


def terminal() -> tuple[int, bool]:
    """Width of stdout, and whether it takes colour."""
    from rich.console import Console

    console = Console()
    width = console.width if console.is_terminal else 100
    return width, console.is_terminal and not console.no_color


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
