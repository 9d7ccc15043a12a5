"""Answers the kernel's questions about what a script's processes are about to change.

A thread of the host process: it has to be above the ranks, or it may not read their memory. If
it is killed, calls that change files fail in the ranks: nothing gets past it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sfbench.guard.asking import AskedCall, act
from sfbench.guard.calls import this_architecture
from sfbench.guard.folders import PREFIX
from sfbench.guard.journal import Journal
from sfbench.guard.mounts import REAL, is_below, mount_of, parse
from sfbench.guard.places import place_on
from sfbench.guard.ticket import Ticket

_QUESTION = struct.Struct("QIIiIQ6Q")
_ANSWER = struct.Struct("QqiI")
_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_GO_ON = 1
_POLL_S = 0.2


class Keeper:
    """Context manager; around one launch."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self._mounts = parse(Path("/proc/self/mountinfo").read_text())
        self._machine = this_architecture()
        self._calls = {call.number: call for call in self._machine.calls}
        self._journal = Journal(Path(ticket.path), self._place, self._mount)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(f"\0{ticket.address}")
        self._server.listen(4096)
        self._poll = select.epoll()
        self._poll.register(self._server, select.EPOLLIN)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """All processes of the launch have ended."""
        self._stopped.set()
        self._thread.join()
        self._server.close()
        self._poll.close()
        self._journal.close()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            for descriptor, events in self._poll.poll(_POLL_S):
                if descriptor == self._server.fileno():
                    self._welcome()
                elif events & select.EPOLLIN:
                    self._answer(descriptor)
                else:  # the last process under it has ended
                    self._poll.unregister(descriptor)
                    os.close(descriptor)

    def _welcome(self) -> None:
        """A rank hands over if the kernel asks for it and for all that it starts."""
        peer, _ = self._server.accept()
        with peer, suppress(OSError):
            _, (listener,), _, _ = socket.recv_fds(peer, 1, 1)
            self._poll.register(listener, select.EPOLLIN)
            peer.send(b"k")

    def _answer(self, listener: int) -> None:
        buffer = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, buffer)
        except OSError:  # the process has been killed meanwhile
            return
        key, task, _, number, _, _, *arguments = _QUESTION.unpack(buffer)
        answer = self._judge(task, number, arguments)
        value = (0, 0, _GO_ON) if answer is None else (0, -answer, 0)
        with suppress(OSError):  # as above
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(key, *value))

    def _judge(self, task: int, number: int, arguments: Sequence[int]) -> int | None:
        question = AskedCall(task=task, call=self._calls[number], arguments=tuple(arguments))
        try:
            return act(question, self._journal, self._is_real)
        except (
            FileNotFoundError
        ):  # the process is gone, or a path leads nowhere: it fails by itself
            return None
        except OSError as error:
            return error.errno if error.errno == errno.ENOSPC else errno.EROFS

    def _is_real(self, path: str) -> bool:
        return any(is_below(path, folder) for folder in (*REAL, *self._ticket.wanted.real))

    def _mount(self, path: str) -> str:
        return mount_of(path, self._mounts).path

    def _place(self, path: str) -> str:
        at = mount_of(path, self._mounts)
        near = (*self._ticket.wanted.near, os.path.dirname(path))  # noqa: PTH120
        folder = place_on(at, self._mounts, near) or os.path.dirname(path)  # noqa: PTH120
        return f"{folder}/{PREFIX}{uuid.uuid4().hex[:12]}"
