"""Stacks of all threads of hanging ranks: asked for by a signal, written to their logs."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

SIGNAL = signal.SIGRTMIN + 8
"""Not one of those that schedulers and scripts use."""

_QUIET_S = 0.2
_POLL_S = 0.02
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.+)$', re.MULTILINE)
_WAITING = ("/torch/distributed/", "/torch/nn/parallel/distributed.py", "/torch/autograd/")
_OWN = "/sfbench/probe/"
"""Hooks stand between a script and what it called: they are no place in its code."""


def request(pids: Iterable[int], sizes: Callable[[], tuple[int, ...]], limit_s: float) -> None:
    """Ask processes for their stacks and wait until the logs are written.

    ``sizes`` gives the length of each process's log. A process that is stopped or sits in the
    kernel cannot answer, hence the limit.
    """
    before = sizes()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, SIGNAL)
    end_s = time.monotonic() + limit_s
    last, last_s = before, time.monotonic()
    while (now_s := time.monotonic()) < end_s:
        size = sizes()
        if size != last:
            last, last_s = size, now_s
        answered = all(new > old for new, old in zip(last, before, strict=True))
        if answered and now_s - last_s >= _QUIET_S:
            return
        time.sleep(_POLL_S)


def innermost(dump: str) -> str | None:
    """``function at file.py:line`` where the main thread is; None where the dump has no frame.

    The main thread, being the oldest, comes last in what faulthandler writes.
    """
    frames = _main_thread(dump)
    if not frames:
        return None
    file, line, name = frames[0]
    return f"{name} at {Path(file).name}:{line}"


def waits_for_others(dump: str) -> bool:
    """Whether the main thread is inside a collective: at its top frames, torch's own code."""
    return any(part in file for file, _, _ in _main_thread(dump)[:3] for part in _WAITING)


def _main_thread(dump: str) -> list[tuple[str, str, str]]:
    frames = _FRAME.findall(dump.rpartition("(most recent call first):")[2])
    return [frame for frame in frames if _OWN not in frame[0]]
