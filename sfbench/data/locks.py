"""The lock that says a process lives, and the removal of what dead ones left.

A POSIX record lock: the kernel frees it when the process dies, however it dies, and a forked child
(a download pool, a loader worker) does not inherit it, as it would an flock. A process frees its
own by closing *any* descriptor of the file, so it opens it once and never asks about it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from pathlib import Path

LOCK = "lock"
_STALE_S = 3600.0


def hold(folder: Path) -> int:
    """Mark the folder as that of a living process; closing the descriptor unmarks it."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    return descriptor


def held(folder: Path) -> bool:
    """Whether the process of the folder lives; one without a lock file does not."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two ranks that look at once do not take each other for the holder.
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(descriptor)
    return False


def remove_dead(job: Path, *, keep: Path) -> None:
    """Remove all folders of the job whose process is gone, but for the caller's own."""
    for folder in _folders(job):
        if folder != keep and not held(folder):
            shutil.rmtree(folder, ignore_errors=True)


def remove_stale_jobs(own: Path) -> None:
    """Remove folders of jobs that were killed, long after anyone could still read them."""
    for job in own.parent.iterdir():
        with contextlib.suppress(OSError):
            old = time.time() - job.stat().st_mtime > _STALE_S
            if job != own and old and not any(held(folder) for folder in _folders(job)):
                shutil.rmtree(job)


def _folders(job: Path) -> list[Path]:
    return [path for path in job.iterdir() if path.is_dir()]
