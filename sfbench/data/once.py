"""``once_per_node``: one rank of each node does the work, the others wait for its outcome."""

from __future__ import annotations

import functools
import os
import pickle
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast, overload

from sfbench.common.errors import SfbenchError, UsageError
from sfbench.data.node_folder import Follower, Leader, job_folder, join
from sfbench.data.ranks import LocalPlace, local_place

P = ParamSpec("P")
T = TypeVar("T")

# As long as torch.distributed waits for a rank that never comes to a collective.
ARRIVAL_TIMEOUT_S = 1800.0
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05


class OncePerNodeError(SfbenchError):
    """Local rank 0 gave no outcome: it died, never came, or raised what cannot be passed on.

    Also the cause of an exception that was raised on local rank 0 and again on this rank: it holds
    the traceback from there.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What local rank 0 passes on, pickled."""

    value: bytes | None = None
    """None if there was an exception."""
    error: bytes | None = None
    """None also if the exception cannot travel."""
    text: str = ""
    """The traceback, if there was an exception."""


@dataclass(slots=True)
class _Process:
    """What this process remembers between calls; begun anew in a forked child."""

    pid: int
    job: Path
    leader: Leader | None = None
    follower: Follower | None = None
    calls: Counter[str] = field(default_factory=Counter)


_process: _Process | None = None
_guard = threading.Lock()
_inside = threading.local()


@overload
def once_per_node(fn: Callable[P, T], /) -> Callable[P, T]: ...
@overload
def once_per_node(
    *, arrival_timeout_s: float = ...
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def once_per_node(
    fn: Callable[P, T] | None = None, /, *, arrival_timeout_s: float = ARRIVAL_TIMEOUT_S
) -> Callable[P, T] | Callable[[Callable[P, T]], Callable[P, T]]:
    """Let local rank 0 of each node run ``fn``; the others wait and get its result.

    Every rank of the node must call it, in the same order, as with a collective. Each call runs
    ``fn`` once more. The value is pickled to the other ranks: return a path, not the data. It needs
    no process group, and works the same before and after ``init_process_group``. A call from inside
    ``fn`` to another such function runs directly. An exception of ``fn`` is raised on every rank,
    with the traceback of local rank 0 as its cause. There is no limit on the time ``fn`` takes, but
    one, ``arrival_timeout_s``, on the time until local rank 0 calls it.

    Raises ``OncePerNodeError`` on the other ranks if local rank 0 was killed, ended, or did not
    call ``fn`` in time, and on all if the value cannot be pickled; ``UsageError`` in a
    DataLoader worker, or if the environment tells no local rank.
    """
    if fn is None:
        return functools.partial(_decorate, arrival_timeout_s=arrival_timeout_s)
    return _decorate(fn, arrival_timeout_s=arrival_timeout_s)


def _decorate(fn: Callable[P, T], *, arrival_timeout_s: float) -> Callable[P, T]:
    name = f"{fn.__module__}.{fn.__qualname__}"

    @functools.wraps(fn)
    def once(*args: P.args, **kwargs: P.kwargs) -> T:
        place = local_place()
        if getattr(_inside, "busy", False) or place.local_world_size == 1:
            return fn(*args, **kwargs)
        _refuse_loader_worker(name)
        process, call = _next_call(name)
        if place.local_rank == 0:
            return _lead(process, call, place, functools.partial(fn, *args, **kwargs))
        return cast(T, _follow(process, call, name, place.local_rank, arrival_timeout_s))

    return once


def _next_call(name: str) -> tuple[_Process, str]:
    """This process, and a name for the call that is the same on every rank of the node."""
    global _process  # noqa: PLW0603  (one per process: the lock is the process's)
    with _guard:
        if _process is None or _process.pid != os.getpid():
            _process = _Process(pid=os.getpid(), job=job_folder())
            Finalize(None, _leave, args=(_process,), exitpriority=0)
        _process.calls[name] += 1
        return _process, f"{sha256(name.encode()).hexdigest()[:16]}-{_process.calls[name]}"


def _leave(process: _Process) -> None:
    """At the end of the process: remove what nobody needs any more."""
    if process.leader is not None:
        process.leader.close()
    if process.follower is not None:
        process.follower.close()


def _lead(process: _Process, call: str, place: LocalPlace, work: Callable[[], T]) -> T:
    with _guard:
        if process.leader is None:
            process.leader = Leader(process.job, place.local_world_size)
        leader = process.leader
    leader.start(call)
    _inside.busy = True
    try:
        value = work()
        outcome = _Outcome(value=_pickled_value(value))
    except BaseException as error:
        outcome = _Outcome(error=_pickled_error(error), text=traceback.format_exc())
        raise
    finally:
        _inside.busy = False
        leader.publish(call, pickle.dumps(outcome))
    return value


def _follow(
    process: _Process, call: str, name: str, local_rank: int, arrival_timeout_s: float
) -> Any:
    deadline, pause = time.monotonic() + arrival_timeout_s, _FIRST_PAUSE_S
    while True:
        process.follower = process.follower or join(process.job, local_rank)
        started = False
        if process.follower is not None:
            led, started = process.follower.led(), process.follower.started(call)
            # Looked for last: a leader that ended since may have left it.
            outcome = process.follower.take(call)
            if outcome is not None:
                return _result(pickle.loads(outcome), name)
            if not led:
                raise OncePerNodeError(_died(process.follower.leader_pid, name, started))
        if not started and time.monotonic() > deadline:
            raise OncePerNodeError(
                f"Local rank 0 did not call {name} within {arrival_timeout_s:g} s of this rank. "
                "Every rank of the node must call it, in the same order."
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _died(pid: int, name: str, started: bool) -> str:
    when = f"while it ran {name}" if started else f"before it called {name}"
    return (
        f"Local rank 0 (process {pid}) ended {when}, so there is no result. Its own log says why; "
        "without a message there it was killed, often for memory. What it had not finished does "
        "not count: start the job again."
    )


def _result(outcome: _Outcome, name: str) -> Any:
    """The value, or local rank 0's exception with its traceback as the cause."""
    if outcome.value is not None:
        try:
            return pickle.loads(outcome.value)
        except Exception as error:
            raise OncePerNodeError(
                f"The value of {name} from local rank 0 cannot be unpickled here: {error}. "
                "Return a path or plain values."
            ) from error
    there = OncePerNodeError(f"{name} failed on local rank 0:\n{outcome.text}")
    if outcome.error is None:
        raise there
    raise cast(Exception, pickle.loads(outcome.error)) from there


def _pickled_value(value: object) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise OncePerNodeError(
            f"A value of type {type(value).__name__} cannot be passed to the other ranks: {error}. "
            "Return a path or plain values."
        ) from error


def _pickled_error(error: BaseException) -> bytes | None:
    """The exception, if it survives the way to another process; else None.

    Only ordinary exceptions travel: an interrupt or a ``sys.exit`` of one process is not an order
    to the others.
    """
    if not isinstance(error, Exception):
        return None
    try:
        content = pickle.dumps(error)
        return content if type(pickle.loads(content)) is type(error) else None
    except Exception:  # any class may fail in its own way to pickle itself; its text travels
        return None


def _refuse_loader_worker(name: str) -> None:
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        raise UsageError(
            f"{name} was called in a DataLoader worker, where the ranks of the node cannot meet. "
            "Call it in the main process before the loader is made."
        )
