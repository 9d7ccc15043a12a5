"""The system calls that change files: their numbers, and what each one's arguments are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

What = Literal[
    "open", "open-how", "create", "truncate", "rename", "link", "symlink", "unlink", "rmdir",
    "make", "change", "change-open", "bind",
]  # fmt: skip
HERE = -100
"""``AT_FDCWD``: no folder is given, paths are taken from the process's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A system call; places are of its arguments, None: it has no such one."""

    number: int
    what: What
    path: int = 0
    at: int | None = None
    """Descriptor of the folder that the path is taken from."""
    other: int | None = None
    """A second path."""
    other_at: int | None = None
    flags: int | None = None
    follows: bool = True
    """Acts on what a link leads to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What differs between processors."""

    architecture: int
    seccomp: int
    calls: tuple[Call, ...]
    refused: tuple[int, ...]
    """Other doors to files, which nothing can watch: io_uring_setup and open_by_handle_at."""


def _call(number: int, what: What, **places: int | bool) -> Call:
    return Call(number=number, what=what, **places)  # type: ignore[arg-type]


def _common(n: dict[str, int]) -> tuple[Call, ...]:
    """Calls that take a folder's descriptor; all machines have them."""
    return (
        _call(n["openat"], "open", at=0, path=1, flags=2),
        _call(437, "open-how", at=0, path=1, flags=2),
        _call(n["truncate"], "truncate", path=0),
        _call(n["renameat"], "rename", at=0, path=1, other_at=2, other=3, follows=False),
        _call(n["renameat2"], "rename", at=0, path=1, other_at=2, other=3, flags=4, follows=False),
        _call(n["linkat"], "link", at=0, path=1, other_at=2, other=3, flags=4, follows=False),
        _call(n["symlinkat"], "symlink", at=1, path=2, follows=False),
        _call(n["unlinkat"], "unlink", at=0, path=1, flags=2, follows=False),
        _call(n["mkdirat"], "make", at=0, path=1, follows=False),
        _call(n["mknodat"], "make", at=0, path=1, follows=False),
        _call(n["fchmodat"], "change", at=0, path=1),
        _call(452, "change", at=0, path=1),
        _call(n["fchownat"], "change", at=0, path=1),
        _call(n["utimensat"], "change", at=0, path=1),
        *(_call(n[name], "change-open", at=0) for name in ("fchmod", "fchown")),
        *(_call(n["setxattr"] + i, "change", follows=i == 0) for i in (0, 1)),
        _call(n["setxattr"] + 2, "change-open", at=0),
        *(_call(n["removexattr"] + i, "change", follows=i == 0) for i in (0, 1)),
        _call(n["removexattr"] + 2, "change-open", at=0),
        _call(463, "change", at=0, path=1),
        _call(466, "change", at=0, path=1),
        _call(n["bind"], "bind", path=1, follows=False),
    )


_X86_64 = Architecture(
    architecture=0xC000003E,
    seccomp=317,
    calls=(
        *_common({
            "openat": 257, "truncate": 76, "renameat": 264, "renameat2": 316, "linkat": 265,
            "symlinkat": 266, "unlinkat": 263, "mkdirat": 258, "mknodat": 259, "fchmodat": 268,
            "fchownat": 260, "utimensat": 280, "fchmod": 91, "fchown": 93, "setxattr": 188,
            "removexattr": 197, "bind": 49,
        }),
        _call(2, "open", flags=1),
        _call(85, "create"),
        _call(82, "rename", other=1, follows=False),
        _call(86, "link", other=1, follows=False),
        _call(88, "symlink", path=1, follows=False),
        _call(87, "unlink", follows=False),
        _call(84, "rmdir", follows=False),
        _call(83, "make", follows=False),
        _call(133, "make", follows=False),
        _call(90, "change"),
        _call(92, "change"),
        _call(94, "change", follows=False),
        _call(132, "change"),
        _call(235, "change"),
        _call(261, "change", at=0, path=1),
    ),
    refused=(425, 304),
)  # fmt: skip
_AARCH64 = Architecture(
    architecture=0xC00000B7,
    seccomp=277,
    calls=_common({
        "openat": 56, "truncate": 45, "renameat": 38, "renameat2": 276, "linkat": 37,
        "symlinkat": 36, "unlinkat": 35, "mkdirat": 34, "mknodat": 33, "fchmodat": 53,
        "fchownat": 54, "utimensat": 88, "fchmod": 52, "fchown": 55, "setxattr": 5,
        "removexattr": 14, "bind": 200,
    }),
    refused=(425, 265),
)  # fmt: skip


def this_architecture() -> Architecture:
    """Raises ``OSError`` on a processor whose calls are not known here."""
    known = {"x86_64": _X86_64, "aarch64": _AARCH64}
    name = os.uname().machine
    if name not in known:
        raise OSError(f"system calls of {name} are not known")
    return known[name]
