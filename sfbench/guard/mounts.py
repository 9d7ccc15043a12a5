"""What is mounted where, and what the guard does with each of it. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Way = Literal["overlay", "bind"]

REAL = ("/proc", "/sys", "/dev", "/run", "/var/run")
"""Below these nothing is a user's file: devices, shared memory, sockets of services."""
_KERNELS = frozenset((
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
    "devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "ramfs",
    "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
))  # fmt: skip
"""Types of file systems that hold no files of anybody."""
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A line of ``/proc/self/mountinfo``."""

    path: str
    kind: str
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What the script sees at a mount point."""

    mount: Mount
    way: Way
    """overlay: what it writes goes elsewhere. bind: as it is."""


def parse(text: str) -> tuple[Mount, ...]:
    """The mounts that can be seen, those above first; of several at one place the last."""
    found: dict[str, Mount] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        path, options = left.split()[4:6]
        kind, _, rest = right.partition(" ")
        writable = "rw" in options.split(",") and "rw" in rest.split()[-1].split(",")
        path = _ESCAPE.sub(lambda m: chr(int(m[1], 8)), path)
        found[path] = Mount(path=path, kind=kind, writable=writable)
    return tuple(sorted(found.values(), key=lambda m: (m.path != "/", m.path.count("/"))))


def layers(mounts: Iterable[Mount]) -> tuple[Layer, ...]:
    """How each mount is shown to the script."""
    return tuple(
        Layer(mount=mount, way="overlay" if _holds_files(mount) else "bind") for mount in mounts
    )


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount:
    """The mount that a real path lies on."""
    return max((m for m in mounts if is_below(path, m.path)), key=lambda m: len(m.path))


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it."""
    return folder in ("/", path) or path.startswith(folder.rstrip("/") + os.sep)


def _holds_files(mount: Mount) -> bool:
    if mount.path == "/":
        return True
    real = any(is_below(mount.path, folder) for folder in REAL)
    return mount.writable and not real and mount.kind not in _KERNELS
