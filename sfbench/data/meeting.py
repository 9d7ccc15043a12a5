"""Where the ranks of one node meet: a private folder, led by local rank 0.

    <tmp>/sfbench-<uid>/<job>/lead           which session leads, written by rename
    <tmp>/sfbench-<uid>/<job>/<token>/lock   locked by local rank 0 for as long as it lives
    <tmp>/sfbench-<uid>/<job>/<token>/<call>.started
    <tmp>/sfbench-<uid>/<job>/<token>/<call>.<local rank>   one outcome for each other rank

The folder is on the node's own disk, whatever file system the data is on. The lock is a POSIX
record lock: the kernel frees it when the process dies, however it dies, and a forked child (a
download pool, a loader worker) does not inherit it, as it would an flock. A process frees such a
lock by closing *any* descriptor of the file, so the leader opens it once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import stat
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from sfbench.errors import UsageError

# What tells two jobs on one node apart, and two nodes that share a disk. GROUP_RANK is torchrun's
# number of the node: it also keeps two torchrun "nodes" on one machine apart.
_JOB = (
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT",
    "SLURM_JOB_ID", "SLURM_STEP_ID", "GROUP_RANK", "SLURM_NODEID", "NODE_RANK", "WORLD_SIZE",
)  # fmt: skip
_UNIQUE = ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "SLURM_STEP_ID")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STALE_S = 3600.0
_OWNER_ONLY = 0o700
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The life of one local rank 0, as its peers see it."""

    folder: Path
    pid: int
    started_s: float
    """Seconds since boot at which it began to lead."""

    def alive(self) -> bool:
        """Whether the leading process still holds its lock."""
        return _locked(self.folder / "lock")

    def started(self, call: str) -> bool:
        """Whether local rank 0 has entered the call."""
        return (self.folder / f"{call}.started").exists()

    def take(self, call: str, local_rank: int) -> bytes | None:
        """This rank's outcome of the call, once; None while there is none."""
        path = self.folder / f"{call}.{local_rank}"
        try:
            outcome = path.read_bytes()
        except FileNotFoundError:
            return None
        path.unlink()
        return outcome

    def leave(self) -> None:
        """Remove the session if it is over and nobody has an outcome left to take."""
        if not self.alive():
            _remove_session(self.folder)


class Leader:
    """Local rank 0's side of its session."""

    def __init__(self, job: Path) -> None:
        """Lead the job's folder, cleared of what dead sessions left in it."""
        self.folder = _new_folder(job)
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        _remove_dead_sessions(job, keep=self.folder)
        _remove_stale_jobs(job)
        lead = {"token": self.folder.name, "pid": os.getpid(), "started_s": boot_s()}
        _write_whole(job / "lead", json.dumps(lead).encode())

    def start(self, call: str) -> None:
        """Tell the others that the call has begun."""
        (self.folder / f"{call}.started").touch()

    def publish(self, call: str, outcome: bytes, local_world_size: int) -> None:
        """Give each other rank the outcome of the call."""
        source = self.folder / f"{call}.partial"
        source.write_bytes(outcome)
        for local_rank in range(1, local_world_size):
            os.link(source, self.folder / f"{call}.{local_rank}")
        source.unlink()
        (self.folder / f"{call}.started").unlink()

    def close(self) -> None:
        """Stop leading. What others have still to take stays; the last of them removes it.

        The lock is freed first: a rank that takes the last outcome meanwhile then sees it free.
        """
        os.close(self._lock)
        _remove_session(self.folder)


def find_session(job: Path, process_start_s: float) -> Session | None:
    """The session that leads the job's folder; None where there is none yet.

    A dead one counts only if it began after this process did: else it is what an earlier run with
    the same address and port left behind.
    """
    _refuse_foreign(job.parent)
    try:
        lead = json.loads((job / "lead").read_bytes())
    except FileNotFoundError:
        return None
    session = Session(
        folder=job / lead["token"], pid=int(lead["pid"]), started_s=float(lead["started_s"])
    )
    return session if session.started_s > process_start_s or session.alive() else None


def job_folder() -> Path:
    """Path of the private folder of this job on this node."""
    base = Path(tempfile.gettempdir()) / f"sfbench-{os.getuid()}"
    return base / hashlib.sha256("\0".join(_job_key()).encode()).hexdigest()[:16]


def boot_s() -> float:
    """Seconds since the machine booted: the clock that /proc states process starts in."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_start_s() -> float:
    """When this process started, in ``boot_s`` time (field 22 of /proc/self/stat, see proc(5))."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _job_key() -> list[str]:
    boot_id = _BOOT_ID.read_text() if _BOOT_ID.exists() else ""
    key = [socket.gethostname(), boot_id]
    key += [f"{name}={os.environ.get(name, '')}" for name in _JOB]
    if not any(name in os.environ for name in _UNIQUE):
        key.append(str(os.getppid()))
    return key


def _locked(lock: Path) -> bool:
    """Whether another process holds the lock; a lock file that is gone is free."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two ranks that look at once do not take each other for the leader.
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(descriptor)
    return False


def _new_folder(job: Path) -> Path:
    """Make a session's folder. Another job's end may remove an empty parent meanwhile."""
    folder = job / uuid.uuid4().hex
    for attempt in range(_ATTEMPTS):
        try:
            job.parent.mkdir(mode=_OWNER_ONLY, exist_ok=True)
            _refuse_foreign(job.parent)
            job.mkdir(mode=_OWNER_ONLY, exist_ok=True)
            folder.mkdir(mode=_OWNER_ONLY)
            break
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise
    return folder


def _refuse_foreign(base: Path) -> None:
    """Raise ``UsageError`` where others could write: outcomes are unpickled."""
    try:
        found = base.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UsageError(
            f"{base} is not a folder that only this user can enter, so ranks cannot meet there. "
            "Remove it, or set TMPDIR to a private folder on the node's own disk."
        )


def _remove_dead_sessions(job: Path, *, keep: Path) -> None:
    for old in _sessions(job):
        # Never look at the own lock: closing any descriptor of it would free it.
        if old != keep and not _locked(old / "lock"):
            shutil.rmtree(old, ignore_errors=True)


def _sessions(job: Path) -> list[Path]:
    return [path for path in job.iterdir() if path.is_dir()]


def _remove_session(folder: Path) -> None:
    if any(path.suffix[1:].isdigit() for path in _listed(folder)):
        return
    shutil.rmtree(folder, ignore_errors=True)
    job = folder.parent
    with contextlib.suppress(OSError, ValueError):
        if json.loads((job / "lead").read_bytes())["token"] == folder.name:
            (job / "lead").unlink()
    for parent in (job, job.parent):
        with contextlib.suppress(OSError):
            parent.rmdir()


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _remove_stale_jobs(own: Path) -> None:
    """Remove folders of jobs that were killed, long after anyone could still read them."""
    for job in own.parent.iterdir():
        with contextlib.suppress(OSError):
            old = time.time() - job.stat().st_mtime > _STALE_S
            if job != own and old and not any(_locked(s / "lock") for s in _sessions(job)):
                shutil.rmtree(job)


def _write_whole(path: Path, content: bytes) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)
