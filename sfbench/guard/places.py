"""Where on a file system the guard may put a folder of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sfbench.guard.mounts import REAL, Mount, is_below, mount_of

_NO_UPPER = ("overlay", "nfs", "fuse", "cifs", "smb", "vfat", "exfat", "9p", "lustre", "gpfs")
"""Begin the types of file systems on which the kernel puts no upper layer of an overlay."""


def place_on(
    mount: Mount, mounts: Sequence[Mount], near: Sequence[str], *, upper: bool = False
) -> str | None:
    """A folder on a mount that can be written to, the least conspicuous first; None: there is none.

    ``upper``: it has to bear the upper layer of an overlay.
    """
    if not mount.writable or any(is_below(mount.path, folder) for folder in REAL):
        return None
    if upper and mount.kind.startswith(_NO_UPPER):
        return None
    usual = [tempfile.gettempdir(), "/tmp", "/var/tmp", *near]
    with suppress(RuntimeError):  # no home
        usual.append(str(Path.home()))
    for path in (*usual, mount.path):
        real = os.path.realpath(path)
        usable = os.path.isdir(real) and os.access(real, os.W_OK | os.X_OK)  # noqa: PTH112
        if usable and mount_of(real, mounts).path == mount.path:
            return real
    return None
