"""Two attributes of a Linux process that the standard library has no call for."""

from __future__ import annotations

import ctypes
import os
import signal

_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36


def die_with_parent() -> None:
    """Have the kernel send SIGKILL to this process when the thread that started it ends.

    Not inherited by children, kept over exec. Raises ``OSError`` if the kernel refuses.
    """
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none is lost.

    Raises ``OSError`` if the kernel refuses.
    """
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
