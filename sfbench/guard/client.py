"""The guard as the command sees it: one per launcher, one view per launch."""

from __future__ import annotations

import json
import os
import select
import stat
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sfbench.common.errors import UsageError
from sfbench.guard import registry
from sfbench.guard.ticket import Ticket, Wanted

_CLOSE_S = 60.0
"""How long removing what the script wrote may take."""


class Guard:
    """Started before the first launch, closed after the last."""

    def __init__(self) -> None:
        """Tidy what killed commands left, and start the guard's process.

        Raises:
            UsageError: it cannot be started.
        """
        _warn(*registry.tidy())
        try:
            self._registered = registry.Registered.new()
            self._process = subprocess.Popen(
                [*_python(), str(self._registered.path), str(self._registered.lock)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[self._registered.lock],
                start_new_session=True,  # a Ctrl-C at the terminal reaches this process only
                text=True,
            )
        except OSError as error:
            raise _refused(str(error)) from error
        self._process.wait()  # it goes on as a process of no one's
        self.alive = True
        """False once it was found killed."""

    @contextmanager
    def launch(self, wanted: Wanted) -> Iterator[Ticket]:
        """The guard of one launch, from before its ranks start until they are gone.

        Raises:
            UsageError: it cannot be had here, so nothing may be started.
        """
        answer = self._ask({"open": asdict(wanted)})
        if "refused" in answer:
            raise _refused(answer["refused"])
        try:
            yield Ticket(
                kind=answer["kind"],
                path=answer["path"],
                wanted=wanted,
                address=answer.get("address", ""),
                notes=_notes(answer),
            )
        finally:
            with suppress(UsageError):  # it was killed: what it left is tidied at the end
                _warn(self._ask({"close": None}).get("refused"))

    def close(self) -> None:
        """End it; what the script wrote is gone afterwards."""
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        answers = self._process.stdout
        assert answers is not None
        select.select([answers], [], [], _CLOSE_S)  # its end, and nothing else, can be read
        answers.close()
        self._registered.close()
        _warn(*registry.tidy())

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        into, out = self._process.stdin, self._process.stdout
        assert into is not None
        assert out is not None
        try:
            into.write(json.dumps(request) + "\n")
            into.flush()
            answer = out.readline()
        except OSError:
            answer = ""
        if not answer:
            self.alive = False
            raise _refused("the guard's process was killed")
        return dict(json.loads(answer))


def _refused(why: str) -> UsageError:
    return UsageError(
        f"what the script writes cannot be kept off your files here: {why}. With --allow-saves it "
        "writes as it does without sfbench."
    )


def _warn(*told: str | None) -> None:
    for text in filter(None, told):
        warnings.warn(f"sfbench: your files: {text}", RuntimeWarning, stacklevel=3)


def _notes(answer: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{path} could only be read: it cannot be guarded"
        for path in answer.get("locked", ())
        if Path(path).is_dir()
    )


def _python() -> list[str]:
    alone = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *alone, "-m", "sfbench.guard.server"]


def wanted_for(script: str, args: Sequence[str], *real: str) -> Wanted:
    """What a launch of a script needs: the tool's own folders stay as they are.

    So do pipes that it is told to talk through: another process has the other end.
    """
    near = [os.path.dirname(script)]  # noqa: PTH120
    with suppress(FileNotFoundError):  # removed meanwhile: the ranks say so
        near.insert(0, os.getcwd())  # noqa: PTH109
    values = (arg.rpartition("=")[2] for arg in args)
    pipes = (os.path.realpath(value) for value in values if _is_pipe(value))
    return Wanted(real=(*real, *_own_cache(), *pipes), near=tuple(near))


def _is_pipe(value: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(value).st_mode)  # noqa: PTH116
    except (OSError, ValueError):  # no path
        return False


def _own_cache() -> tuple[str, ...]:
    """Where the reference workloads keep what they generate: it is the tool's own."""
    given = os.environ.get("SFBENCH_CACHE")
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(given) if given else Path(home or Path.home() / ".cache") / "sfbench"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a workload that needs it will say so
        return ()
    return (str(folder.absolute()),)
