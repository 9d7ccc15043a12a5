"""Calls of the Linux kernel that the standard library has no name for."""

from __future__ import annotations

import ctypes
import os

NEW_MOUNTS = 0x00020000
"""``CLONE_NEWNS``: a view of the file systems of one's own."""
READ_ONLY = 0x1
REMOUNT = 0x20
BIND = 0x1000
RECURSIVE = 0x4000
PRIVATE = 0x40000
DETACH = 0x2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave what is shared with the parent. Raises ``OSError``."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(descriptor: int, flags: int) -> None:
    """Enter a namespace. Raises ``OSError``; also if this process has more than one thread."""
    _check(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(flags)), "setns")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount. Raises ``OSError`` with the target."""
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    options = os.fsencode(data) if data else None
    _check(_libc.mount(*words, ctypes.c_ulong(flags), options), target)


def pivot_root(folder: str) -> None:
    """Make a mount point the root of this process's view, and let go of the old one."""
    os.chdir(folder)
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"pivot_root: its number is not known on {os.uname().machine}")
    _check(_libc.syscall(ctypes.c_long(number), b".", b"."), f"pivot_root {folder}")
    _check(_libc.umount2(b".", ctypes.c_int(DETACH)), "the old root")
    os.chdir("/")


def prctl(option: int, value: int) -> None:
    """Change an attribute of this process. Raises ``OSError``."""
    zeros = [ctypes.c_ulong(0)] * 3
    _check(_libc.prctl(option, ctypes.c_ulong(value), *zeros), "prctl")


def call(number: int, *arguments: int) -> int:
    """Make a system call by its number. Raises ``OSError``."""
    result = int(_libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
