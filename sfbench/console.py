"""What commands tell people: lines on stderr, and how stdout looks."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """To the person at the terminal, not to what reads the result."""
    sys.stderr.write(f"{text}\n")


def terminal() -> tuple[int, bool]:
    """Width of stdout, and whether it takes colour."""
    from rich.console import Console

    console = Console()
    width = console.width if console.is_terminal else 100
    return width, console.is_terminal and not console.no_color
