"""Find and end processes: all that a launch, or a host, has started."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from sfbench.launch.channel import MARK

GRACE_S = 3.0
"""Between TERM and KILL."""
_KILL_S = 1.0
_KILL_ROUNDS = 3
"""More than one: what is killed may have started another in between."""
_POLL_S = 0.02
_SHARED_MEMORY = Path("/dev/shm")

Find = Callable[[], list[psutil.Process]]


def children(keep: Collection[int] = ()) -> list[psutil.Process]:
    """All processes below this one, those in ``keep`` left out (not so their own children)."""
    found = psutil.Process().children(recursive=True)
    return [process for process in found if process.pid not in keep]


def marked(mark: str) -> list[psutil.Process]:
    """All processes, wherever they hang, that inherited the mark of a host in their environment."""
    entry = f"{MARK}={mark}".encode()
    return [p for p in psutil.process_iter() if entry in _environment(p.pid).split(b"\0")]


def cpu_s(pid: int) -> float:
    """Processor time that a process and those below it have used, in seconds."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                total += times.user + times.system
    return total


def has_ended(pid: int) -> bool:
    """Whether a process has ended; it is not reaped."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_gone(find: Find, limit_s: float) -> bool:
    """Wait until ``find`` finds nothing; False if the limit came first."""
    end_s = time.monotonic() + limit_s
    while find():
        if time.monotonic() > end_s:
            return False
        time.sleep(_POLL_S)
    return True


def end(find: Find, grace_s: float = GRACE_S) -> None:
    """End all that ``find`` finds: TERM, then KILL after the grace, until it finds no more.

    A process in uninterruptible sleep outlives this; it dies when the kernel lets go of it.
    """
    ended = find()
    if not ended:
        return
    _signal(ended, psutil.Process.terminate)
    _wait(ended, grace_s)
    for _ in range(_KILL_ROUNDS):
        alive = [process for process in {*ended, *find()} if not _is_gone(process)]
        if not alive:
            break
        _signal(alive, psutil.Process.kill)
        _wait(alive, _KILL_S)
        ended += alive
    _unlink_shared_memory({process.pid for process in ended})


def _wait(processes: list[psutil.Process], limit_s: float) -> None:
    wait_gone(lambda: [process for process in processes if not _is_gone(process)], limit_s)


def _is_gone(process: psutil.Process) -> bool:
    """Whether it has ended, reaped or not; reaps it if that is this process's duty."""
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _signal(processes: Iterable[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            send(process)


def _unlink_shared_memory(pids: Collection[int]) -> None:
    """Remove shared tensors that ended processes left: ``/dev/shm/torch_<pid>_...``.

    torch unlinks each as soon as it is mapped, so only an end in between leaves one.
    """
    for path in _SHARED_MEMORY.glob("torch_*_*"):
        if path.name.split("_")[1] in {str(pid) for pid in pids}:
            path.unlink(missing_ok=True)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # ended, or another user's
        return b""
