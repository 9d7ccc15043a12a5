"""A folder of a user's, a sweep of a script that saves over it, and the ways in which that ends."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from harness import SCRIPTS

from sfbench.guard import registry

SFBENCH = Path(sys.executable).with_name("sfbench")
SCRIPT = SCRIPTS / "saves_all_ways.py"
GUARDS = ("overlay", "journal")
LIMIT_S = 120.0
GONE_S = 20.0
"""How long what tidies up after a killed command may take."""

Tree = dict[str, tuple[object, ...]]


def fill(folder: Path) -> None:
    """Files of an earlier run, under the names that the script saves to."""
    names = (
        "model.pt", "last.pt", "best.pt", "best2.pt", "epoch0.pt", "epoch3.pt", "behind.pt",
        "weights.npy", "weights.npz", "mapped.bin", "state.pkl", "log.json", "log.csv", "log.txt",
        "old-run/model.pt", "anew/thesis.txt", "cut.txt", "rights.txt", "times.txt", "all.zip",
    )  # fmt: skip
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"the user's {name}\n" * (number + 1))
        path.chmod(0o640)
        os.utime(path, ns=(number * 10**15, number * 10**15 + 1))
    (folder / "keep.pt").hardlink_to(folder / "best.pt")
    (folder / "through.pt").symlink_to("behind.pt")
    (folder / "latest.pt").symlink_to("epoch3.pt")
    with sqlite3.connect(folder / "runs.db") as base:
        base.execute("create table runs (epoch int)")


def tree(folder: Path) -> Tree:
    """Content, rights and times of all that lies in a folder."""
    found: Tree = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        state = path.lstat()
        content: object = None
        if path.is_symlink():
            content = str(path.readlink())
        elif stat.S_ISREG(state.st_mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(folder))] = (state.st_mode, state.st_mtime_ns, content)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A sweep over a filled folder; each method ends it in one way and returns its exit code."""

    folder: Path
    """The user's."""
    place: Path
    """For the result, the pipe and the state of the guard."""
    guard: str
    temporary: str
    script: Path = SCRIPT

    def done(self, *ways: str) -> int:
        """It comes to its end."""
        return self._ended(self._start(*ways))

    def raised(self, *ways: str) -> int:
        """The script raises on one rank."""
        return self._ended(self._start(*ways, extra=("--raises",)))

    def interrupted(self, *ways: str) -> int:
        """Ctrl-C."""
        return self._in_the_middle(ways, lambda command, _: command.send_signal(signal.SIGINT))

    def terminated(self, *ways: str) -> int:
        """SIGTERM."""
        return self._in_the_middle(ways, lambda command, _: command.terminate())

    def rank_killed(self, *ways: str) -> int:
        """SIGKILL of a rank."""
        return self._in_the_middle(ways, lambda _, rank: os.kill(rank, signal.SIGKILL))

    def host_killed(self, *ways: str) -> int:
        """SIGKILL of the process between command and ranks."""

        def kill(command: subprocess.Popen[bytes], _: int) -> None:
            for host in psutil.Process(command.pid).children():
                host.kill()

        return self._in_the_middle(ways, kill)

    def killed(self, *ways: str) -> int:
        """SIGKILL of the command, and of all below it: what tidies up is not below it."""

        def kill(command: subprocess.Popen[bytes], _: int) -> None:
            family = psutil.Process(command.pid).children(recursive=True)
            for process in (psutil.Process(command.pid), *family):
                process.kill()

        code = self._in_the_middle(ways, kill)
        end_s = time.monotonic() + GONE_S
        while self.left() and time.monotonic() < end_s:
            time.sleep(0.05)
        return code

    def all_killed(self, *ways: str) -> int:
        """SIGKILL of every process of the tool at once; then the next command begins."""

        def kill(command: subprocess.Popen[bytes], _: int) -> None:
            family = psutil.Process(command.pid).children(recursive=True)
            for process in (*self._guards(), psutil.Process(command.pid), *family):
                process.kill()

        code = self._in_the_middle(ways, kill)
        subprocess.run(
            [sys.executable, "-c", "from sfbench.guard import registry; print(registry.tidy())"],
            env=self._environment(), check=True, timeout=LIMIT_S,
        )  # fmt: skip
        return code

    def left(self) -> list[str]:
        """What the guard has not removed."""
        state = self.place / "state" / "sfbench" / "guards"
        known = [path.name for path in state.glob("*") if path.name != registry.TIDYING]
        places = [self.folder, self.folder.parent, Path(self.temporary), Path.cwd(), self.place]
        return [*known, *(path.name for place in places for path in place.glob(".sfbench-guard-*"))]

    def _guards(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                words = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if "sfbench.guard.server" in words and str(self.place) in words:
                found.append(process)
        return found

    def _in_the_middle(
        self, ways: tuple[str, ...], happens: Callable[[subprocess.Popen[bytes], int], None]
    ) -> int:
        pipe = self.place / "pipe"
        os.mkfifo(pipe)
        command = self._start(*ways, extra=("--tell", str(pipe)), seconds="60")
        happens(command, int(pipe.read_text()))
        return self._ended(command)

    def _start(
        self, *ways: str, extra: tuple[str, ...] = (), seconds: str = "1"
    ) -> subprocess.Popen[bytes]:
        small = ("--devices", "2", "--rounds", "1", "--seconds", seconds, "--precision", "1e-9")
        what = ("--warmup", "10", "--rungs", "train", "--device", "cpu", "--no-report")
        where = ("--output", str(self.place / "results"), "--name", "one")
        given = ("--ways", *ways) if ways else ()
        words = (*small, *what, *where, "--", str(self.folder), *extra, *given)
        with (self.place / "said").open("wb") as said:
            return subprocess.Popen(
                [SFBENCH, "sweep", self.script, *words],
                env=self._environment(), cwd=self.place, stdout=said, stderr=said,
            )  # fmt: skip

    def said(self) -> str:
        """What the command said, for an assertion that fails."""
        logs = (self.place / "results").rglob("*.log")
        return "\n".join(path.read_text() for path in (self.place / "said", *logs))

    def _environment(self) -> dict[str, str]:
        own = {"SFBENCH_GUARD": self.guard, "XDG_STATE_HOME": str(self.place / "state")}
        return {**os.environ, **own, "TMPDIR": self.temporary}

    @staticmethod
    def _ended(command: subprocess.Popen[bytes]) -> int:
        return command.wait(LIMIT_S)


ENDS: dict[str, int] = {
    "done": 0, "raised": 5, "interrupted": 130, "terminated": 130, "rank_killed": 5,
    "host_killed": 4, "killed": -9, "all_killed": -9,
}  # fmt: skip
"""Each way in which a sweep may end, and its exit code."""
