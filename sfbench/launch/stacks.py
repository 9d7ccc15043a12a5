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
_OWN = tuple(f"/sfbench/{part}/" for part in ("probe", "launch", "protocol", "guard"))
"""Hooks stand between a script and what it called: they are no place in its code."""
_BASE = ("_run_script", "_call", "enter")
"""Functions of the tool that a script stands on."""
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ")
_FATAL = "Fatal Python error: "
_FIRST = "(most recent call first):"


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

    Where that is a library's code, the line of the script that led there stands beside it.
    """
    return _place(_main_thread(dump))


def crash_site(log: str) -> str | None:
    """The same of the thread that a fatal signal met; None where the log tells of none."""
    _, fatal, dump = log.rpartition(_FATAL)
    _, _, stack = dump.partition("Current thread")
    return _place(_frames(stack.partition(_FIRST)[2].partition("\n\n")[0])) if fatal else None


def waits_for_others(dump: str) -> bool:
    """Whether the main thread is inside a collective: at its top frames, torch's own code."""
    return any(part in file for file, _, _ in _main_thread(dump)[:3] for part in _WAITING)


def without_own(log: str) -> str:
    """The text of a log as if the script had run by itself: no frame of the tool's."""
    kept = []
    below = leaving_out = False
    for line in log.splitlines():
        if line.startswith('  File "'):
            below = below or _is_base(line.split('"')[1], line.rpartition(" in ")[2])
            leaving_out = _is_own(line) or (below and _FRAME.match(line) is not None)
        elif not line.startswith("    "):
            leaving_out, below = line.startswith("Extension modules: "), False
        if not leaving_out:
            kept.append(line)
    return "\n".join(kept)


def _place(frames: list[tuple[str, str, str]]) -> str | None:
    if not frames:
        return None
    script = next((frame for frame in frames if not _is_library(frame[0])), frames[0])
    caller = "" if script is frames[0] else f", called by {_named(script)}"
    return f"{_named(frames[0])}{caller}"


def _named(frame: tuple[str, str, str]) -> str:
    file, line, name = frame
    return f"{name} at {Path(file).name}:{line}"


def _main_thread(dump: str) -> list[tuple[str, str, str]]:
    """The main thread, being the oldest, comes last in what faulthandler writes."""
    return _frames(dump.rpartition(_FIRST)[2])


def _frames(stack: str) -> list[tuple[str, str, str]]:
    """Without the tool's own, and without what every rank stands on: that lies below them."""
    frames: list[tuple[str, str, str]] = _FRAME.findall(stack)
    base = (i for i, (file, _, name) in enumerate(frames) if _is_base(file, name))
    return [frame for frame in frames[: next(base, len(frames))] if not _is_own(frame[0])]


def _is_base(file: str, name: str) -> bool:
    return name in _BASE and _is_own(file)


def _is_own(file: str) -> bool:
    return any(part in file for part in _OWN)


def _is_library(file: str) -> bool:
    return any(part in file for part in _LIBRARIES)
