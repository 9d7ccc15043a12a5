"""The processes that ranks are forked from: torch is imported there, once.

What an interpreter draws when it starts is shared by all that is forked from it: the secret of
``hash()``, and so the order of sets of text. Under torchrun each rank has its own, and a script
whose ranks agree by ``hash()`` alone is wrong there. So ranks are dealt over several servers: as
many as there are cores to import torch on, two at least. If PYTHONHASHSEED is set all ranks
share it under torchrun too, and one server will do.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from typing import Any

_PRELOAD = ["sfbench.launch.fork_server"]
FEWEST = 2
"""Servers if several ranks start on one node, however few its cores are."""


class ForkServers:
    """Starts servers when they are needed first, and processes from them. Not thread-safe."""

    def __init__(self) -> None:
        self._servers: list[forkserver.ForkServer] = []

    def ensure(self, ranks: int) -> None:
        """Start what is needed for so many ranks. They import while the caller goes on."""
        while len(self._servers) < servers_for(ranks):
            server = forkserver.ForkServer()
            server.set_forkserver_preload(_PRELOAD)
            server.ensure_running()
            self._servers.append(server)

    def start(self, target: Callable[..., None], args: tuple[Any, ...], ranks: int) -> list[Any]:
        """Start ``target(local_rank, *args)`` in a process for each rank; they are by rank."""
        self.ensure(ranks)
        return [self._start(target, (rank, *args)) for rank in range(ranks)]

    def _start(self, target: Callable[..., None], args: tuple[Any, ...]) -> BaseProcess:
        process = multiprocessing.get_context("forkserver").Process(target=target, args=args)
        with _forked_by(self._servers[args[0] % len(self._servers)]):
            process.start()
        return process


def servers_for(ranks: int) -> int:
    """How many servers the ranks of a node are dealt over."""
    if os.environ.get("PYTHONHASHSEED", "random") != "random":
        return 1
    return min(ranks, max(FEWEST, len(os.sched_getaffinity(0))))


@contextlib.contextmanager
def _forked_by(server: forkserver.ForkServer) -> Iterator[None]:
    """multiprocessing knows one server only: put another one in its place."""
    name = "connect_to_new_process"
    before = getattr(forkserver, name)
    setattr(forkserver, name, server.connect_to_new_process)
    try:
        yield
    finally:
        setattr(forkserver, name, before)
