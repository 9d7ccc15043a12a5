"""Launches on this machine, seen from the command line process. Imports no torch."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import BinaryIO

from sfbench.common.plain_text import plain_values
from sfbench.guard.client import Guard, wanted_for
from sfbench.guard.ticket import Ticket
from sfbench.launch import tree
from sfbench.launch.blame import how, launcher_failed
from sfbench.launch.channel import MARK, RunRequest
from sfbench.launch.gpus import watched
from sfbench.launch.logs import LAST_LINES
from sfbench.launch.outcome import LaunchOutcome, OnProgress
from sfbench.plan.sweep_plan import NodeJob

ENTRY = "sfbench.probe.script_runner:rank_main"
"""What each rank calls with its RankJob."""

_CLOSE_S = 4.0
"""How long the host may take to end all ranks before it is killed with them."""
_LEFT_S = 1.0
"""How long what only outlives the host by a moment may take (Python's resource tracker)."""
_LOG_BYTES = 8_192
_WAIT_S = 0.5

Waiting = Callable[[], None]
"""Called now and then while a launch runs; what it raises ends the launch."""


def _nothing() -> None:
    """Nothing is looked after."""


class LocalLauncher:
    """Context manager; one per sweep.

    Entering starts the host process, in which torch is imported while the caller goes on. Leaving
    ends all that was started; so does the end of this process, however it comes.
    """

    def __init__(self, *, threads: int, device_type: str, entry: str = ENTRY) -> None:
        """Take ``threads`` intra-op threads per device and ``cpu`` or ``cuda`` as device type.

        Both hold for all launches. ``entry`` names the function that each rank calls, as
        ``module:function``.
        """
        self._environment = environment(threads, device_type)
        self._device_type = device_type
        self._entry = entry
        self._host: _Host | None = None
        self._guard: Guard | None = None
        self._launches = 0

    def __enter__(self) -> LocalLauncher:
        self._host = _Host(self._environment)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._close()
        finally:
            if self._guard is not None:
                self._guard.close()

    def run(
        self, node_job: NodeJob, on_progress: OnProgress, while_waiting: Waiting = _nothing
    ) -> LaunchOutcome:
        """Run one launch; blocks until none of its processes is left.

        ``node_job.log_dir`` is made where it does not stand; ``launch_dir`` has to. What is raised
        while it waits (Ctrl-C, or by one of the calls) is raised again after all has ended: it
        takes up to 5 s. On nodes after the first an ok launch has no record.

        Raises:
            UsageError: what the script writes cannot be kept off the user's files; not started.
        """
        with self._guarded(node_job) as guard:
            return self._run(node_job, on_progress, guard, while_waiting)

    def _run(
        self,
        node_job: NodeJob,
        on_progress: OnProgress,
        guard: Ticket | None,
        while_waiting: Waiting,
    ) -> LaunchOutcome:
        start_s = time.monotonic()
        if self._host is None:
            self._host = _Host(self._environment)
        request = RunRequest(
            node_job=node_job, entry=self._entry, launch=self._launches, guard=guard
        )
        self._launches += 1
        try:
            with watched(self._device_type) as gpus:
                outcome = self._host.run(request, on_progress, while_waiting)
            outcome = replace(outcome, gpus=gpus.states())
        except _HostDied:
            outcome = launcher_failed(self._host.last_words(), start_s)
        except BaseException:
            self._close()
            raise
        error = outcome.error
        if error is not None and error.kind in {"launcher", "interrupted"}:
            error = replace(error, last_lines=self._host.log_lines())
            self._close()  # it is ending: the next launch gets a new host
        if error is not None and guard is not None and os.strerror(errno.EROFS) in error.message:
            error = replace(error, message=f"{error.message} {_why_read_only(guard)}")
        error = plain_values(error)
        return replace(outcome, error=error, start_s=start_s, wall_s=time.monotonic() - start_s)

    @contextmanager
    def _guarded(self, node_job: NodeJob) -> Iterator[Ticket | None]:
        job = node_job.job
        if job.probe.allow_saves:
            yield None
            return
        if self._guard is None or not self._guard.alive:
            self._guard = Guard()
        node_job.log_dir.mkdir(parents=True, exist_ok=True)
        wanted = wanted_for(job.script, job.args, job.launch_dir, str(node_job.log_dir.absolute()))
        with self._guard.launch(wanted) as ticket:
            yield ticket

    def _close(self) -> None:
        if self._host is not None:
            host, self._host = self._host, None
            host.close()


NO_GPU = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "-1",  # ROCm takes an empty one for none at all
    "ONEAPI_DEVICE_SELECTOR": "*:cpu",
}
"""Hides GPUs of all makers from a measurement on the CPU."""


def environment(threads: int, device_type: str) -> dict[str, str]:
    """Variables that hold for all ranks, the same at every device count.

    torchrun sets OMP_NUM_THREADS only where a node has more than one rank, which gives one device
    all cores and each of several only one.
    """
    fixed = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if device_type == "cpu":
        fixed |= NO_GPU
    return {**os.environ, **fixed}


def _why_read_only(guard: Ticket) -> str:
    known = "; ".join(guard.notes) or "what cannot be guarded may not be changed"
    return f"(To keep your files as they are: {known}. --allow-saves lets the script write.)"


class _HostDied(Exception):
    """The host process ended before it answered."""


class _Host:
    """The host process and the channel to it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._mark = uuid.uuid4().hex
        self._log: BinaryIO = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [*_python(), "-m", "sfbench.launch", str(theirs.fileno())],
                env={**environment, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C at the terminal reaches this process only
            )

    def run(
        self, request: RunRequest, on_progress: OnProgress, while_waiting: Waiting
    ) -> LaunchOutcome:
        try:
            self._connection.send(request)
            while True:
                while not self._connection.poll(_WAIT_S):
                    while_waiting()
                if isinstance(message := self._connection.recv(), LaunchOutcome):
                    return message
                on_progress(message)
        except (EOFError, ConnectionError) as error:
            raise _HostDied from error

    def last_words(self) -> str:
        try:
            end = how(self._process.wait(_CLOSE_S))
        except subprocess.TimeoutExpired:
            end = "stopped answering"
        return f"The launcher's host process {end}. Its last lines tell more."

    def log_lines(self) -> tuple[str, ...]:
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), _LOG_BYTES, max(0, size - _LOG_BYTES))
        return tuple(text.decode(errors="replace").splitlines()[-LAST_LINES:])

    def close(self) -> None:
        """End the host and all below it. A further Ctrl-C meanwhile kills them at once."""
        self._connection.close()
        try:
            self._process.wait(_CLOSE_S)
            tree.wait_gone(lambda: tree.marked(self._mark), _LEFT_S)
        except subprocess.TimeoutExpired:
            pass  # killed below
        finally:
            tree.end(lambda: tree.marked(self._mark), grace_s=0.0)
            self._process.wait()
            self._log.close()


def _python() -> list[str]:
    """The interpreter; the current folder is kept out of its path, as torchrun does."""
    return [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]
