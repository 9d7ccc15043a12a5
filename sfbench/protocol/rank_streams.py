"""A rank's standard streams, which its script may close, redirect or set to None."""

from __future__ import annotations

import contextlib
import os
import sys


def flush_streams() -> None:
    """Write out what is buffered; a script may have closed its streams, or set them to None."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()


def to_log(text: str) -> None:
    """Into the rank's log, whatever the script did to its streams."""
    flush_streams()
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))
