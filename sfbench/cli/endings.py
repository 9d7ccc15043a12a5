"""How commands end that do not come to their own end: errors nobody raised on purpose, signals."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from sfbench.cli.console import say
from sfbench.common.errors import SfbenchError, UsageError

_FULL = (errno.ENOSPC, errno.EDQUOT)
"""No room is left: such an error names no file."""


ENDING_S = 10.0
"""How long a first signal is obeyed before a second one is."""


class Unexpected(Exception):
    """Carries an error past click, which ends with 1 at some (a broken pipe, an end of file)."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class CommandGroup(TyperGroup):
    """Runs a command; what nobody raised on purpose is set apart from what click raises."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SfbenchError:
            raise
        except Exception as error:
            # click lies in typer or beside it, depending on the version
            if any(
                kind.__module__.startswith(("click.", "typer.")) for kind in type(error).__mro__
            ):
                raise
            raise Unexpected(error) from error


def told(error: Exception) -> int:
    """Exit code of an error that nobody raised on purpose, once it is told."""
    if isinstance(error, FileNotFoundError) and error.filename is None and not _is_somewhere():
        say("sfbench: the current folder was removed: change to one that exists (cd)")
        return UsageError.exit_code
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _FULL):
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        say(f"sfbench: {place}{error.strerror or error}")
        return UsageError.exit_code
    say("".join(traceback.format_exception(error)).rstrip())
    say("sfbench: this is a defect of sfbench itself: please report it with the lines above")
    return SfbenchError.exit_code


def _is_somewhere() -> bool:
    """Whether the current folder still exists."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends a sweep as Ctrl-C does: everything it started is ended first.

    Another signal does not disturb that: build servers send two within seconds.
    """
    until_s = 0.0

    def interrupt(signum: int, frame: Any) -> None:
        nonlocal until_s
        if time.monotonic() >= until_s:
            until_s = time.monotonic() + ENDING_S
            raise KeyboardInterrupt

    # SIGHUP: the terminal was closed. Under nohup it is ignored, and stays so.
    every = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signals = [number for number in every if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
