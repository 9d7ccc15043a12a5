"""What commands share: the result on stdout, lines on stderr, and how stdout looks."""

from __future__ import annotations

import codecs
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from sfbench.common.plain_text import VALUE, plain

_IN_ASCII = str.maketrans(
    {"–": "-", "—": "-", "±": "+-", "…": "...", "·": "-", "µ": "u", "×": "x", "→": "->"}
    | {"“": '"', "”": '"', "‘": "'", "’": "'", "≤": "<=", "≥": ">="}
)
"""What this tool's own texts hold beyond ASCII, for a terminal that takes no more."""


def put_text(text: str) -> None:
    """A result to stdout, as far as its encoding goes."""
    sys.stdout.write(text)


def put_json(text: str) -> None:
    """A document to stdout: what its encoding lacks stands escaped, which changes no value."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, _ESCAPED).decode(encoding))


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """An error handler of codecs: as JSON writes what is not ASCII."""
    assert isinstance(error, UnicodeEncodeError)
    unfit = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    units = (unfit[place : place + 2].hex() for place in range(0, len(unfit), 2))
    return "".join(f"\\u{unit}" for unit in units), error.end


_ESCAPED = "sfbench-json"
codecs.register_error(_ESCAPED, _escaped)


def say(text: str) -> None:
    """To the person at the terminal, not to what reads the result; made plain."""
    sys.stderr.write(f"{plain(text, VALUE)}\n")


def annotate(line: str) -> None:
    """A line that a build server is to obey. What stands in it was made plain before."""
    sys.stderr.write(f"{line}\n")


def news(text: str, *, quiet: bool) -> None:
    """What went well: not said if ``--quiet`` stands."""
    if not quiet:
        say(text)


def terminal() -> tuple[int, bool]:
    """Width of stdout, and whether it takes colour."""
    from rich.console import Console

    console = Console()
    # Not the console's own width: of a terminal that is dumb it takes 80 columns for granted.
    width = shutil.get_terminal_size().columns if console.is_terminal else 100
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
            try:
                return self._stream.write(text)
            except UnicodeEncodeError:
                return self._stream.write(_fitting(text, self._stream.encoding))
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


def _fitting(text: str, encoding: str) -> str:
    """The nearest that an encoding can tell."""
    taken = [c if _fits(c, encoding) else c.translate(_IN_ASCII) for c in text]
    return "".join(taken).encode(encoding, "backslashreplace").decode(encoding)


def _fits(char: str, encoding: str) -> bool:
    try:
        char.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


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
