"""Where the ranks of one node meet: a private folder, led by local rank 0.

    <tmp>/sfbench-<uid>/<job>/lead           which session leads, written by rename
    <tmp>/sfbench-<uid>/<job>/<token>/lock   held by local rank 0 for as long as it lives
    <tmp>/sfbench-<uid>/<job>/<token>/<local rank>.joined, or .left when that rank has ended
    <tmp>/sfbench-<uid>/<job>/<token>/<call>.started
    <tmp>/sfbench-<uid>/<job>/<token>/<call>.<local rank>   one outcome for each other rank

The folder is on the node's own disk, whatever file system the data is on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import stat
import tempfile
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from sfbench.common.errors import UsageError
from sfbench.data.locks import held, hold, remove_dead, remove_stale_jobs
from sfbench.data.process import boot_s, process_start_s, start_ticks
from sfbench.protocol.records import NODE_FOLDER

# What tells two jobs on one node apart, and two nodes that share a disk. GROUP_RANK is torchrun's
# number of the node: it also keeps two torchrun "nodes" on one machine apart.
_JOB = (
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT",
    "SLURM_JOB_ID", "SLURM_STEP_ID", "GROUP_RANK", "SLURM_NODEID", "NODE_RANK", "WORLD_SIZE",
)  # fmt: skip
_UNIQUE = ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "SLURM_STEP_ID")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OWNER_ONLY = 0o700
_ATTEMPTS = 10
# Ranks of one start begin within this time of each other.
_ONE_START_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """The life of one local rank 0, as all ranks of the node see it."""

    token: str
    pid: int
    began_s: float
    """Seconds since boot at which it began to lead."""
    parent: str | None
    """Who started it."""
    local_world_size: int

    def folder(self, job: Path) -> Path:
        """Where its files are."""
        return job / self.token


class Leader:
    """Local rank 0's side of its session."""

    def __init__(self, job: Path, local_world_size: int) -> None:
        """Lead the job's folder, cleared of what dead sessions left in it."""
        self._session = Lead(
            token=uuid.uuid4().hex,
            pid=os.getpid(),
            began_s=boot_s(),
            parent=_parent(),
            local_world_size=local_world_size,
        )
        self._job, self._folder = job, self._session.folder(job)
        _make(self._folder)
        self._lock = hold(self._folder)
        remove_dead(job, keep=self._folder)
        remove_stale_jobs(job)
        partial = job / f"lead.{self._session.token}"
        partial.write_text(json.dumps(asdict(self._session)))
        partial.replace(job / "lead")

    def start(self, call: str) -> None:
        """Tell the others that the call has begun."""
        (self._folder / f"{call}.started").touch()

    def publish(self, call: str, outcome: bytes) -> None:
        """Give each other rank the outcome of the call."""
        source = self._folder / f"{call}.partial"
        source.write_bytes(outcome)
        for local_rank in range(1, self._session.local_world_size):
            os.link(source, self._folder / f"{call}.{local_rank}")
        source.unlink()
        (self._folder / f"{call}.started").unlink()

    def close(self) -> None:
        """Stop leading. What others have still to take stays; the last to leave removes it.

        The lock is freed first: the last other rank, if it leaves meanwhile, then sees it free.
        """
        os.close(self._lock)
        _remove_if_over(self._job, self._session)


class Follower:
    """Another local rank's side of the session that it joined."""

    def __init__(self, job: Path, session: Lead, local_rank: int) -> None:
        """Join. Raises ``FileNotFoundError`` if the session is over for all."""
        self._job, self._session, self._local_rank = job, session, local_rank
        self._folder = session.folder(job)
        self._joined = _joined(self._folder, local_rank)
        self._joined.touch()

    @property
    def leader_pid(self) -> int:
        """The process that leads."""
        return self._session.pid

    def led(self) -> bool:
        """Whether the leading process lives."""
        return held(self._folder)

    def started(self, call: str) -> bool:
        """Whether local rank 0 is in the call."""
        return (self._folder / f"{call}.started").exists()

    def take(self, call: str) -> bytes | None:
        """This rank's outcome of the call, once; None while there is none."""
        path = self._folder / f"{call}.{self._local_rank}"
        try:
            outcome = path.read_bytes()
        except FileNotFoundError:
            return None
        path.unlink()
        return outcome

    def close(self) -> None:
        """Leave, and remove the session if it is over for all."""
        with contextlib.suppress(FileNotFoundError):
            self._joined.rename(_left(self._folder, self._local_rank))
        if not self.led():
            _remove_if_over(self._job, self._session)


def join(job: Path, local_rank: int) -> Follower | None:
    """Join the session that leads the job's folder; None if there is none yet."""
    _refuse_foreign(job.parent)
    try:
        session = Lead(**json.loads((job / "lead").read_bytes()))
        if held(session.folder(job)) or _is_of_this_start(session, job, local_rank):
            return Follower(job, session, local_rank)
    except FileNotFoundError:
        pass
    return None


def job_folder() -> Path:
    """Path of the private folder of this job on this node."""
    base = Path(os.environ.get(NODE_FOLDER) or tempfile.gettempdir()) / f"sfbench-{os.getuid()}"
    return base / hashlib.sha256("\0".join(_job_key()).encode()).hexdigest()[:16]


def _is_of_this_start(session: Lead, job: Path, local_rank: int) -> bool:
    """Whether a session whose leader is gone is this rank's, or what an earlier run left.

    It is this rank's if it began after this process did. A leader may also have ended before
    this process began, if ranks are started by hand one after the other: then both have the
    same parent, and no earlier process of this local rank joined it.
    """
    later_s = process_start_s() - session.began_s
    if later_s < 0:
        return True
    folder = session.folder(job)
    taken = _joined(folder, local_rank).exists() or _left(folder, local_rank).exists()
    return not taken and later_s < _ONE_START_S and session.parent == _parent() is not None


def _job_key() -> list[str]:
    boot_id = _BOOT_ID.read_text() if _BOOT_ID.exists() else ""
    key = [socket.gethostname(), boot_id]
    key += [f"{name}={os.environ.get(name, '')}" for name in _JOB]
    if not any(name in os.environ for name in _UNIQUE):
        key.append(_parent() or "")
    return key


def _parent() -> str | None:
    """Who started this process; None if that is outside the container."""
    try:
        return f"{os.getppid()}~{start_ticks(os.getppid())}"
    except ProcessLookupError:
        return None


def _joined(folder: Path, local_rank: int) -> Path:
    return folder / f"{local_rank}.joined"


def _left(folder: Path, local_rank: int) -> Path:
    return folder / f"{local_rank}.left"


def _make(folder: Path) -> None:
    """Make a session's folder. Another job's end may remove an empty parent meanwhile."""
    job = folder.parent
    for attempt in range(_ATTEMPTS):
        try:
            job.parent.mkdir(mode=_OWNER_ONLY, exist_ok=True)
            _refuse_foreign(job.parent)
            job.mkdir(mode=_OWNER_ONLY, exist_ok=True)
            folder.mkdir(mode=_OWNER_ONLY)
            return
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise


def _refuse_foreign(base: Path) -> None:
    """Raise ``UsageError`` if others could write: outcomes are unpickled."""
    try:
        found = base.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UsageError(
            f"{base} is not a folder that only this user can enter, so ranks cannot meet there. "
            "Remove it, or set TMPDIR to a private folder on the node's own disk."
        )


def _remove_if_over(job: Path, session: Lead) -> None:
    """Remove a session that no longer leads, once every rank has joined and left it.

    A rank that is still to come, or to look again, would else wait for a leader that is gone.
    """
    folder = session.folder(job)
    if not all(_left(folder, rank).exists() for rank in range(1, session.local_world_size)):
        return
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError, ValueError):
        if json.loads((job / "lead").read_bytes())["token"] == session.token:
            (job / "lead").unlink()
    for parent in (job, job.parent):
        with contextlib.suppress(OSError):
            parent.rmdir()
