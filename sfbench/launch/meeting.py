"""Where the nodes of a sweep meet: one store at the endpoint, kept by the first node's command.

Every node's pulse goes there once a second, by a thread and a connection of its own. A node whose
pulse stands still, or that told its end, is lost. Imports torch: only for several nodes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfbench.common.errors import MeasureError, UsageError

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

LOST_S = 10.0
"""Without a sign of life for so long a node is lost."""
_PULSE_S = 1.0
_LOOK_S = 0.05
"""Pause between two looks for a message."""
_TRY_S = 0.5
_OWN_NAME_S = 30.0
"""The first node's own name is known after so long, or never."""
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_HURRIED_S = 5.0
"""So long a first node that fails or is interrupted stays for the others to hear of it."""
_ONE_TRY_S = 5.0
_ANSWER_S = 20.0
"""What does not answer a new connection for so long is no store."""
_TOKEN, _LEFT = "token", "left"
CLOCK = "clock"
"""The first node's, at its last pulse."""
FAILURE = "failure"
"""Below a launch's prefix: the first failure that a node told."""
_LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"


class NodeLostError(MeasureError):
    """A node that others wait for, or the way to it, is gone."""


def endpoint(text: str | None) -> tuple[str, int]:
    """Split HOST:PORT. Raises ``UsageError`` for anything else."""
    host, _, port = (text or "").rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(
            f"--rdzv-endpoint is {text!r}: several nodes need HOST:PORT of the node with "
            "--node-rank 0, the same on all."
        )
    return host.strip("[]"), int(port)


def launch_prefix(run_id: str) -> str:
    """Before every key of one launch."""
    return f"launch/{run_id}"


class Meeting:
    """Context manager; one per sweep and node."""

    def __init__(self, *, text: str, nnodes: int, node_rank: int, timeout_s: float) -> None:
        """``text``: the endpoint; nobody waits longer than ``timeout_s`` for a node to come."""
        self.nnodes, self.node_rank = nnodes, node_rank
        self._text, self._timeout_s = text, timeout_s
        self._host, self._port = endpoint(text)
        self._server: TCPStore | None = None
        self._stop = threading.Event()
        self._lost: dict[int, str] = {}
        """Node -> why; the first node's loss is that of the way to it."""
        self._known: set[int] = set()
        self.address = self.reached = ""
        """This node's address on the way to the endpoint, and the endpoint's."""

    def look(self, told: Callable[[str], None] = lambda _: None) -> None:
        """See what can be seen before: whether the name resolves, and the port is free.

        A name is waited for: Kubernetes starts a pod before its name is known. ``told`` hears it.

        Raises:
            UsageError: it is not so.
        """
        wait_s = self._timeout_s if self.node_rank else min(self._timeout_s, _OWN_NAME_S)
        until_s, said = time.monotonic() + wait_s, False
        while True:
            try:
                resolve(self._host, self._port)
                break
            except UsageError as error:
                if isinstance(error.__cause__, UnicodeError) or time.monotonic() >= until_s:
                    raise
                if not said:
                    told(f"{error} Waits for at most {wait_s:g} s (--timeout).")
                said = True
            time.sleep(_TRY_S)
        if self.node_rank == 0:
            self._refuse_taken()

    def __enter__(self) -> Meeting:
        try:
            self.look()
            if self.node_rank == 0:
                self._open()
            self._reach()
            self._store = self._connect()
            self._claim()
        except BaseException:
            self._server = None
            raise
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._beaten_s = time.monotonic()
        self._thread.start()
        threading.Thread(target=self._guard_way, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        with contextlib.suppress(RuntimeError):
            self._store.set(
                f"{_LEFT}/{self.node_rank}",
                _how_it_ended(error[1]),
            )
        if self._server is not None:
            self._wait_for_leaving(LOST_S if error[0] is None else _HURRIED_S)
        self._thread.join(_PULSE_S + _TRY_S)
        _end_thread(self._thread, self._port)
        self._server = None

    # -- messages --------------------------------------------------------------------------------

    def put(self, key: str, text: str) -> None:
        """Leave a message. Raises ``NodeLostError`` where the first node cannot be reached."""
        with self._told():
            self._store.set(key, text)

    def put_first(self, key: str, text: str) -> None:
        """Leave a message, unless there is one."""
        with self._told():
            self._store.compare_set(key, "", text)

    def has(self, key: str) -> bool:
        """Whether there is a message."""
        with self._told():
            return bool(self._store.check([key]))

    def get(self, key: str) -> bytes:
        """A message that is there."""
        with self._told():
            return bytes(self._store.get(key))

    def wait(self, key: str, until: Callable[[], bool] = lambda: False) -> bytes | None:
        """A message, as soon as it is there; None where ``until`` becomes true before."""
        while not self.has(key):
            if until():
                return None
            self.check()
            time.sleep(_LOOK_S)
        return self.get(key)

    # -- who is there ----------------------------------------------------------------------------

    def why_lost(self, node: int) -> str | None:
        """Why a node is lost; None: it lives, or has not come yet."""
        return self._lost.get(node)

    def expect(self, node: int) -> None:
        """From now on a node has to live."""
        self._known.add(node)

    def give_up(self, node: int, why: str) -> None:
        """It is not waited for any more."""
        self._lost[node] = why

    def check(self) -> None:
        """Raises ``NodeLostError`` where the first node is lost: then nothing is left to do."""
        why = self._lost.get(0)
        if why is not None:
            raise NodeLostError(
                f"The first node ({self._text}) is lost: {why}. Everything here was ended; what "
                "was measured is on the first node, if that still runs."
            )

    # -- how it works ----------------------------------------------------------------------------

    def _open(self) -> None:
        """Start the store on this node, and see that the endpoint leads to it."""
        with _quiet_torch() as make:
            try:
                self._server = make(
                    "127.0.0.1",
                    self._port,
                    is_master=True,
                    wait_for_workers=False,
                    timeout=timedelta(seconds=LOST_S),
                )
            except RuntimeError as error:
                raise UsageError(self._taken(str(error).splitlines()[0])) from error
        token = uuid.uuid4().hex
        self._server.set(_TOKEN, token)
        ours = False
        with contextlib.suppress(OSError, RuntimeError):
            socket.create_connection((self._host, self._port), _ONE_TRY_S).close()
            there = _client(self._host, self._port)
            ours = (
                there is not None and there.check([_TOKEN]) and there.get(_TOKEN).decode() == token
            )
        if not ours:
            raise UsageError(
                f"--rdzv-endpoint {self._text} does not lead to this machine "
                f"({socket.gethostname()}), which has --node-rank 0: give a name or address of "
                "this machine that the other nodes reach it by."
            )

    def _refuse_taken(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", self._port))
            except OSError as error:
                raise UsageError(self._taken(error.strerror or str(error))) from error

    def _taken(self, why: str) -> str:
        return (
            f"--rdzv-endpoint {self._text}: port {self._port} of this machine "
            f"({socket.gethostname()}) cannot be listened on: {why}. Another program, or another "
            "node with --node-rank 0, has it: give another port, the same on all nodes."
        )

    def _reach(self) -> None:
        """Wait until something listens there, and note by which addresses."""
        until_s = time.monotonic() + self._timeout_s
        while True:
            try:
                with socket.create_connection((self._host, self._port), _ONE_TRY_S) as way:
                    self.address, self.reached = way.getsockname()[0], way.getpeername()[0]
                    return
            except OSError as error:
                if time.monotonic() >= until_s:
                    raise MeasureError(
                        f"--rdzv-endpoint {self._text}: host {self._host}, port {self._port} "
                        f"could not be reached for {self._timeout_s:g} s (--timeout): "
                        f"{error.strerror or error}. Start the same command with --node-rank 0 "
                        "there, and let the port pass."
                    ) from error
                time.sleep(_TRY_S)

    def _connect(self) -> TCPStore:
        found = _client(self._host, self._port)
        if found is None:
            raise UsageError(
                f"--rdzv-endpoint {self._text}: something else than sfbench listens on port "
                f"{self._port} of {self._host}: give another port, the same on all nodes."
            )
        return found

    def _claim(self) -> None:
        if self._store.add(f"claim/{self.node_rank}", 1) > 1:
            raise UsageError(
                f"--node-rank {self.node_rank} is taken at {self._text}: each node needs its own."
            )

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            self._lost.setdefault(0, f"no answer from its store ({str(error).splitlines()[0]})")
            self.check()

    def _beat(self) -> None:
        """Tell of this node and look at the others, until the end or until the way is lost."""
        seen: dict[int, tuple[bytes, float]] = {}
        try:
            store = self._connect()
            beats = 0
            while not self._stop.wait(_PULSE_S):
                beats += 1
                store.set(f"pulse/{self.node_rank}", str(beats))
                self._beaten_s = time.monotonic()
                if self.node_rank == 0:
                    store.set(CLOCK, repr(time.time()))
                for node in {0} if self.node_rank else set(self._known):
                    self._look_at(store, node, seen)
        except (RuntimeError, UsageError) as error:
            if not self._stop.is_set():
                self._lost.setdefault(0, f"no way to it any more ({str(error).splitlines()[0]})")

    def _guard_way(self) -> None:
        """End calls that wait for an answer from beyond a network that is cut: torch does not."""
        while not self._stop.wait(_PULSE_S):
            if time.monotonic() - self._beaten_s > 2 * LOST_S:
                self._lost.setdefault(0, f"no answer from it for {2 * LOST_S:.0f} s")
                for place in Path("/proc/self/fd").iterdir():
                    _hang_up(int(place.name), self._port)
                return

    def _look_at(self, store: Any, node: int, seen: dict[int, tuple[bytes, float]]) -> None:
        left, pulse, now_s = f"{_LEFT}/{node}", f"pulse/{node}", time.monotonic()
        if store.check([left]):
            self._lost.setdefault(node, store.get(left).decode())
            return
        beat = store.get(pulse) if store.check([pulse]) else b""
        before, since_s = seen.setdefault(node, (beat, now_s))
        if beat != before:
            seen[node] = (beat, now_s)
        elif now_s - since_s > LOST_S:
            self._lost.setdefault(node, f"no sign of life for {LOST_S:.0f} s")

    def _wait_for_leaving(self, most_s: float) -> None:
        """The store stays until the others have read the last message."""
        until_s = time.monotonic() + most_s
        for node in self._known:
            while time.monotonic() < until_s and node not in self._lost:
                with contextlib.suppress(RuntimeError):
                    if self._store.check([f"{_LEFT}/{node}"]):
                        break
                time.sleep(_LOOK_S)


def _how_it_ended(error: object) -> str:
    if error is None:
        return "it ended"
    if isinstance(error, KeyboardInterrupt):
        return "it was interrupted"
    first = next(iter(str(error).splitlines()), "")
    return f"it failed: {first}" if first else "it failed"


def _client(host: str, port: int) -> TCPStore | None:
    """A connection to a store; None where what listens there is none.

    In a thread: torch waits without end for the answer of what never gives one.
    """
    made: list[TCPStore] = []
    with _quiet_torch():
        pass  # imported here, however long that takes: the limit below is the network's

    def connect() -> None:
        with _quiet_torch() as make, contextlib.suppress(RuntimeError):
            made.append(make(host, port, is_master=False, timeout=timedelta(seconds=LOST_S)))

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(_ANSWER_S)
    _end_thread(thread, port)
    return made[0] if made else None


def _end_thread(thread: threading.Thread, port: int) -> None:
    """Let a thread end that waits inside torch: at the end of the process it would abort it."""
    until_s = time.monotonic() + 2 * LOST_S
    while thread.is_alive() and time.monotonic() < until_s:
        for place in Path("/proc/self/fd").iterdir():
            _hang_up(int(place.name), port)
        thread.join(_TRY_S)


def _hang_up(descriptor: int, port: int) -> None:
    """End a connection to a port; any other descriptor stays as it is."""
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            with socket.socket(fileno=os.dup(descriptor)) as way:
                if way.family in _INTERNET and way.getpeername()[1] == port:
                    way.shutdown(socket.SHUT_RDWR)


def resolve(host: str, port: int) -> None:
    """Raises ``UsageError`` if a name leads nowhere, or cannot be one."""
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # an empty or too long part of a name is the latter
        why = error.strerror if isinstance(error, OSError) else "it is no host name"
        raise UsageError(
            f"--rdzv-endpoint {host}:{port}: the name {host} cannot be resolved on "
            f"{socket.gethostname()} ({why}): give the address of the node with "
            "--node-rank 0."
        ) from error


@contextmanager
def _quiet_torch() -> Iterator[Any]:
    """torch's store; what it would write about each try is told by this module instead."""
    before = os.environ.get(_LOG_LEVEL)
    os.environ[_LOG_LEVEL] = before or "FATAL"  # read once, when torch is imported
    try:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]
    finally:
        if before is None:
            os.environ.pop(_LOG_LEVEL, None)
    yield TCPStore
