"""A user's folder, a short sweep of a script that saves into it, and what is left of both.

Where the system lets it, a scene has a TMPDIR and a /dev/shm of its own, so that they can be filled
and looked through without a word to anybody else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

from sfbench.collect.result import FILE_NAME, load_result
from sfbench.common.errors import SfbenchError
from sfbench.common.schema import SweepResult
from sfbench.protocol import heartbeat
from sfbench.protocol.records import HEARTBEAT_COLUMNS, PHASES

HERE = Path(__file__).parent
SFBENCH = Path(sys.executable).with_name("sfbench")
GOLDEN = HERE.parent / "golden" / "sweep-schema1.json"
MARK = "SFBENCH_RANDOM_END"
"""Environment variable that every process of a scene inherits."""
DEVICES = (1, 2)
MOMENTS = ("began", "folder", *(f"{n}:{phase}" for n in DEVICES for phase in PHASES[:6]), "storing")
"""In the order in which a sweep comes to them: launches by their devices, and rank 0's phases."""
_ROOM = "48m"
_POLL_S = 0.01
_OTHERS = ("filled", "torchinductor_")
"""The scene's own, and a cache that importing torch makes, with sfbench or without."""
_PHASE = HEARTBEAT_COLUMNS.index("phase")
_TIDY = (
    "import sys; from pathlib import Path; from sfbench.collect import result_folder; "
    "from sfbench.guard import registry, scratch; told = registry.tidy(); "
    "scratch.remove_dead(Path(sys.argv[1])); result_folder.tidy(Path(sys.argv[2])); "
    "sys.exit('; '.join(told))"
)
"""What the next command does before anything else."""

Tree = dict[str, tuple[int, int, str]]


class Scene:
    """One sweep. ``close`` removes everything."""

    def __init__(self, *, force: bool, servers: int) -> None:
        """``force``: over an older result. ``servers``: ranks are forked by 1 process, or by 2."""
        self.top = Path(tempfile.mkdtemp(prefix="sfr.", dir="/tmp"))
        self.user, self.here = self.top / "user", self.top / "here"
        self.out, self.tmp = self.top / "out", self.top / "t"
        for folder in (self.user / "old", self.here, self.out, self.tmp):
            folder.mkdir(parents=True)
        self.script = self.user / "train.py"
        shutil.copy(HERE / "random_job.py", self.script)
        for name in ("last.pt", "best.pt", "gone.pt", "log.txt", "old/thesis.txt"):
            (self.user / name).write_text(f"the user's {name}\n" * 9)
        self._force, self._servers = force, servers
        if force:
            (self.out / "one").mkdir()
            shutil.copy(GOLDEN, self.out / "one" / FILE_NAME)
        self.own_mounts = False
        self._holder = self._mounted()
        self.before = tree(self.user)
        self._launches: list[str] = []

    def _mounted(self) -> subprocess.Popen[str] | None:
        """A process that keeps the scene's own mounts for as long as this one lives."""
        shell = (
            f'mount -t tmpfs -o size={_ROOM} tmpfs "$0" && '
            f"mount -t tmpfs -o size={_ROOM} tmpfs /dev/shm && echo mounted && exec cat"
        )
        words = ["unshare", "-m", "--propagation", "private", "sh", "-c", shell, str(self.tmp)]
        with suppress(FileNotFoundError):
            holder = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            assert holder.stdout is not None
            self.own_mounts = holder.stdout.readline() == "mounted\n"
            return holder
        return None

    def start(self) -> None:
        """Begin the sweep."""
        small = ("--rounds", "1", "--seconds", "0.3", "--warmup", "3", "--rungs", "train")
        where = ("--output", str(self.out), "--name", "one", *(["--force"] * self._force))
        what = ("--devices", "1,2", "--device", "cpu", "--no-report", "--timeout", "20")
        words = [str(SFBENCH), "sweep", str(self.script), *small, *where, *what]
        if self.own_mounts and self._holder is not None:
            enter = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "sh", "-c"]
            words = [*enter, 'cd "$0" && exec "$@"', str(self.here), *words]
        with (self.top / "said").open("wb") as said:
            self.command = subprocess.Popen(
                [*words, "--", str(self.user)], env=self._environment(), cwd=self.here,
                stdout=subprocess.DEVNULL, stderr=said, start_new_session=True,
            )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        own = {"TMPDIR": str(self.tmp), "XDG_STATE_HOME": str(self.top / "state")}
        cache = {"XDG_CACHE_HOME": str(self.top / "cache"), MARK: str(self.top)}
        one = {"PYTHONHASHSEED": "0"} if self._servers == 1 else {}
        return {**os.environ, **own, **cache, **one}

    def inside(self, path: str | Path) -> Path:
        """A path as the sweep sees it."""
        if self.own_mounts and self._holder is not None:
            return Path(f"/proc/{self._holder.pid}/root{path}")
        return Path(path)

    # -- while it runs ---------------------------------------------------------------------------

    def wait_for(self, moment: str, limit_s: float) -> bool:
        """Until the sweep has come to a moment; False where it ended before."""
        wanted, end_s = MOMENTS.index(moment), time.monotonic() + limit_s
        while self._moment() < wanted:
            if self.command.poll() is not None or time.monotonic() > end_s:
                return False
            time.sleep(_POLL_S)
        return self.command.poll() is None

    def _moment(self) -> int:
        partial = next(iter(self.out.glob(".*.partial")), None)
        if partial is None:
            return 0
        if (partial / "steps.parquet").exists():
            return len(MOMENTS) - 1
        now = 1
        for folder in self.inside(self.tmp).glob("sfbench-own-*-launch-*"):
            if folder.name not in self._launches:
                self._launches.append(folder.name)
            number = self._launches.index(folder.name)
            now = max(now, 2 + 6 * min(number, 1) + min(5, _phase(folder)))
        return now

    def processes(self, part: str) -> list[psutil.Process]:
        """Those of the sweep that have a part, by their number."""
        found = [p for p in marked(str(self.top)) if _part(p, self.command.pid) == part]
        return sorted(found, key=lambda p: p.pid)

    def fill(self, folder: str | Path) -> None:
        """Leave no room in a folder that is a file system of its own."""
        place = self.inside(folder)
        with suppress(OSError), (place / "filled").open("wb", buffering=0) as file:
            while True:
                file.write(b"0" * (1 << 16))

    # -- afterwards ------------------------------------------------------------------------------

    def said(self) -> str:
        """What the command said."""
        return (self.top / "said").read_text(errors="replace")

    def wait_alone(self, limit_s: float) -> list[str]:
        """Processes that are left of it after a while."""
        end_s = time.monotonic() + limit_s
        while (left := marked(str(self.top))) and time.monotonic() < end_s:
            time.sleep(0.05)
        return [_described(p) for p in left]

    def tidy(self) -> str:
        """Do what the next command does first; what that says."""
        words = [sys.executable, "-c", _TIDY, str(self.tmp), str(self.out)]
        if self.own_mounts and self._holder is not None:
            words = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", *words]
        done = subprocess.run(
            words,
            env=self._environment(),
            cwd=self.top,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stderr.strip()

    def left(self) -> list[str]:
        """Files that nobody wants any more."""
        places: list[Path] = [self.inside(self.tmp)]
        if self.own_mounts:
            places.append(self.inside("/dev/shm"))
        found = [p for place in places if place.exists() for p in place.iterdir()]
        found += [*self.out.glob(".*"), *self.top.glob(".sfbench*")] if self.out.exists() else []
        state = self.top / "state" / "sfbench" / "guards"
        found += [p for p in state.glob("*") if p.name != "tidying"]
        return [str(p) for p in found if not p.name.startswith(_OTHERS)]

    def results(self) -> dict[str, SweepResult | str]:
        """Each folder of results with its result, or with what is wrong with it."""
        found: dict[str, SweepResult | str] = {}
        for folder in sorted(self.out.glob("[!.]*")) if self.out.exists() else []:
            try:
                found[folder.name] = load_result(folder)
            except SfbenchError as error:
                found[folder.name] = str(error)
        return found

    def close(self) -> None:
        """End what is left, and remove all."""
        for process in marked(str(self.top)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
        self.tidy_registered()
        shutil.rmtree(self.top, ignore_errors=True)

    def tidy_registered(self) -> None:
        """Remove folders of a guard that would outlive the scene."""
        for file in (self.top / "state").rglob("*.json"):
            for folder in json.loads(file.read_text())["folders"]:
                shutil.rmtree(folder, ignore_errors=True)


def tree(folder: Path) -> Tree:
    """Rights, times and content of each file."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (state.st_mode, state.st_mtime_ns, content)
    return found


def marked(mark: str) -> list[psutil.Process]:
    """Processes that live, and inherited the mark."""
    entry = f"{MARK}={mark}".encode()
    return [p for p in psutil.process_iter() if entry in _environ(p.pid).split(b"\0")]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _part(process: psutil.Process, command: int) -> str:
    """command, guard, host, server, tracker, rank, worker or other."""
    try:
        if process.pid == command:
            return "command"
        words, above = " ".join(process.cmdline()), process.parents()
        names = ["sfbench.launch" in " ".join(p.cmdline()) for p in above]
    except psutil.Error:
        return "other"
    if "sfbench.guard.server" in words:
        return "guard"
    if "resource_tracker" in words:
        return "tracker"
    below = names.index(True) if True in names else -1
    return {-1: "host" if "sfbench.launch" in words else "other", 0: "server", 1: "rank"}.get(
        below, "worker"
    )


def _described(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())[:120]}"
    return str(process.pid)


def _phase(folder: Path) -> int:
    with suppress(OSError, ValueError, IndexError):
        table = np.fromfile(folder / heartbeat.FILE_NAME).reshape(-1, len(HEARTBEAT_COLUMNS))
        return int(table[0, _PHASE])
    return 0


def ends(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Whether a command ends in time."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(limit_s)
        return True
    return False


Act = Callable[[Scene], None]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
