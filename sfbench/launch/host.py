"""The host process: serves all launches of a sweep, one after the other.

It exists so that torch is imported once, in a process whose threads and environment are fixed from
its start, and so that everything below it can be ended however the command line process ends.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
from multiprocessing.connection import Connection
from typing import Any

from sfbench.guard.scratch import new_scratch
from sfbench.launch import prctl, tree
from sfbench.launch.channel import RunRequest
from sfbench.launch.launches import Launches
from sfbench.launch.outcome import LaunchOutcome, Progress
from sfbench.launch.servers import FEWEST, ForkServers

_STOP_S = 3.5
"""How long a launch that is told to stop may take, before its processes are killed from here."""

_LONG_PATH = 32
"""A socket's path has at most 107 characters: below a longer folder the fork server has no room."""


def main() -> int:
    """Serve the channel whose descriptor is the first argument, until its other end closes.

    Returns the exit code.
    """
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prctl.adopt_orphans()
    if len(tempfile.gettempdir()) > _LONG_PATH:
        tempfile.tempdir = "/tmp"
    sockets = new_scratch("host")
    multiprocessing.current_process()._config["tempdir"] = str(sockets)  # type: ignore[attr-defined]
    servers = ForkServers()
    try:
        servers.ensure(FEWEST)
        # The first launch waits for this import; requests are read meanwhile.
        target = importlib.import_module
        threading.Thread(target=target, args=("sfbench.launch.agent",), daemon=True).start()
        with Connection(descriptor) as connection:
            return Host(connection, servers).serve()
    finally:
        # The fork servers' sockets lie there; this process runs no exit handlers.
        shutil.rmtree(sockets, ignore_errors=True)


class _Terminated(BaseException):
    """SIGTERM came."""


def _raise_terminated(*_: object) -> None:
    raise _Terminated


class Host:
    """Reads requests in the main thread and runs each launch in another.

    So the end of the channel is seen whatever the launch is waiting for.
    """

    def __init__(self, connection: Connection[Any, Any], servers: ForkServers) -> None:
        self._connection = connection
        self._launches = Launches(servers)
        self._thread: threading.Thread | None = None

    def serve(self) -> int:
        """Until the other end closes, or SIGTERM; then end the launch that runs."""
        signal.signal(signal.SIGTERM, _raise_terminated)
        try:
            while True:
                request = self._connection.recv()
                self._join()
                self._thread = threading.Thread(target=self._run, args=(request,), daemon=True)
                self._thread.start()
        except (EOFError, ConnectionError):
            return 0
        except _Terminated:
            return 128 + signal.SIGTERM
        finally:
            self._end()

    def _run(self, request: RunRequest) -> None:
        self._send(self._launches.run(request, self._send))

    def _send(self, message: Progress | LaunchOutcome) -> None:
        # If nobody listens any more, the main thread sees the same and ends the launch.
        with contextlib.suppress(ConnectionError):
            self._connection.send(message)

    def _join(self, timeout_s: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _end(self) -> None:
        self._launches.stop()
        self._join(_STOP_S)
        if self._thread is not None and self._thread.is_alive():
            tree.end(tree.children, grace_s=0.0)
