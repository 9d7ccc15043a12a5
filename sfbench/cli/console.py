"""What commands share: lines on stderr, and how stdout looks."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast


def say(text: str) -> None:
    """To the person at the terminal, not to what reads the result."""
    sys.stderr.write(f"{text}\n")


def news(text: str, *, quiet: bool) -> None:
    """What went well: not said where ``--quiet`` stands."""
    if not quiet:
        say(text)


def terminal() -> tuple[int, bool]:
    """Width of stdout, and whether it takes colour."""
    from rich.console import Console

    console = Console()
    width = console.width if console.is_terminal else 100
    # TERM=dumb: a terminal that takes no colour
    coloured = console.color_system is not None and not console.no_color
    return width, console.is_terminal and coloured


class Outlet:
    """stdout or stderr that outlives its reader: what nobody reads any more goes nowhere.

    Without it ``sfbench gate … | head -1`` would end wherever the next line is written, with an
    exit code that says nothing of the verdict.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None
        """Why something was lost that somebody wanted; a reader that went away is none."""

    def write(self, text: str) -> int:
        """As the stream does."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._lost(error)
            return len(text)

    def flush(self) -> None:
        """As the stream does."""
        try:
            self._stream.flush()
        except OSError as error:
            self._lost(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _lost(self, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            self.error = self.error or error
        # What the stream still holds must go somewhere, or the interpreter complains at its end.
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def outlets() -> Iterator[Outlet]:
    """Let stdout and stderr outlive their readers; gives that of stdout. Flushed at the end."""
    before = sys.stdout, sys.stderr
    with Path(os.devnull).open("w") as nowhere:
        # None: closed before this began, as by `>&-`
        out, err = Outlet(before[0] or nowhere), Outlet(before[1] or nowhere)
        sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
        try:
            yield out
        finally:
            out.flush()
            err.flush()
            sys.stdout, sys.stderr = before
