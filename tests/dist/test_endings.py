"""How a sweep ends, by the command that people type: figures, exit codes, what is left."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
from harness import SCRIPTS

from sfbench.cli import app
from sfbench.collect.result_folder import ResultFolder
from sfbench.common.schema import SweepResult

SFBENCH = Path(sys.executable).with_name("sfbench")
LIMIT_S = 120.0
"""Generous: only a hang takes so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A sweep that has ended."""

    code: int
    document: dict[str, Any]
    """What ``--json`` printed; empty where nothing was."""
    said: str
    """stderr."""
    folder: Path
    """The result folder."""

    def point(self, devices: int) -> dict[str, Any]:
        """A point of the document."""
        return next(p for p in self.document["points"] if p["devices"] == devices)


class Sweep:
    """A ``sfbench sweep`` in its own process."""

    def __init__(self, output: Path, temporary: str, name: str, words: tuple[str, ...]) -> None:
        self.folder = output / name
        fixed = ("--name", name, "--output", str(output), "--no-report", "--json")
        self._process = subprocess.Popen(
            [SFBENCH, "sweep", *words[:1], *fixed, *words[1:]],
            cwd=output,
            env={**os.environ, "TMPDIR": temporary},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def interrupt(self) -> tuple[set[psutil.Process], float]:
        """Ctrl-C. Returns all processes of the sweep and the time."""
        own = psutil.Process(self._process.pid)
        family = {own, *own.children(recursive=True)}
        self._process.send_signal(signal.SIGINT)
        return family, time.monotonic()

    def end(self) -> Ended:
        """Wait for it."""
        printed, said = self._process.communicate(timeout=LIMIT_S)
        document = json.loads(printed) if printed else {}
        return Ended(
            code=self._process.returncode, document=document, said=said, folder=self.folder
        )

    def close(self) -> None:
        """For tests that fail half way."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.communicate(timeout=LIMIT_S)


Start = Callable[..., Sweep]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts sweeps of small budgets; afterwards neither a process nor a temporary file is left."""
    sweeps: list[Sweep] = []
    temporary = tempfile.TemporaryDirectory()  # a short path: sockets lie there

    def start(script: str, *words: str, name: str = "result", args: tuple[str, ...] = ()) -> Sweep:
        small = ("--devices", "1,2", "--rounds", "1", "--seconds", "0.5", "--warmup", "10")
        options = (*small, "--rungs", "train", "--device", "cpu", *words)
        sweep = Sweep(
            tmp_path, temporary.name, name, (str(SCRIPTS / script), *options, "--", *args)
        )
        sweeps.append(sweep)
        return sweep

    with temporary:
        yield start
        for sweep in sweeps:
            sweep.close()
        assert psutil.Process().children() == []
        left = {path.name for path in Path(temporary.name).iterdir()}
        assert {name for name in left if not name.startswith("torchinductor_")} == set()


def log_of(ended: Ended, devices: int, rank: int) -> str:
    return (ended.folder / "logs" / f"round1-devices{devices}" / f"rank{rank}.log").read_text()


def check_one_device_kept(ended: Ended) -> None:
    """Whatever became of two devices, one device was measured and is written."""
    assert ended.point(1)["status"] == "ok", ended.said
    assert ended.point(1)["samples_per_s"]["value"] > 0
    stored = json.loads((ended.folder / "sweep.json").read_text())
    assert [p["status"] for p in stored["points"]] == [
        p["status"] for p in ended.document["points"]
    ]


def check_failed(ended: Ended, status: str, *told: str) -> None:
    """Two devices gave an error with these words, and no figure."""
    check_one_device_kept(ended)
    point = ended.point(2)
    assert (ended.code, point["status"]) == (5, status), ended.said
    assert (point["samples_per_s"], point["efficiency"], point["step_s"]) == (None, None, None)
    for words in told:
        assert words in point["error"]


def test_crash_on_one_rank(start: Start, tmp_path: Path) -> None:
    args = ("--fault", "raise", "--out", str(tmp_path))
    ended = start("ending_faulty.py", args=args).end()
    check_failed(ended, "failed", "2 devices", "rank 1", "RuntimeError: bad row 17", "rank1.log")
    assert "in something_happens" in log_of(ended, 2, 1)


def test_hang_on_one_rank(start: Start, tmp_path: Path) -> None:
    args = ("--fault", "hang", "--out", str(tmp_path))
    ended = start("ending_faulty.py", "--timeout", "4", args=args).end()
    check_failed(ended, "timeout", "2 devices", "rank 1", "something_happens", "4 s")
    # THEN the stacks of all ranks are in their logs
    assert "in something_happens" in log_of(ended, 2, 1)
    assert "in train_step" in log_of(ended, 2, 0)


def test_hang_beside_a_thread_that_logs(start: Start, tmp_path: Path) -> None:
    args = ("--way", "hang", "--steps", "40", "--rank", "1", "--out", str(tmp_path))
    options = ("--timeout", "3", "--devices", "2", "--seconds", "10")
    ended = start("ending_odd.py", *options, args=args).end()
    # THEN it is given up, and the line of the script is told
    assert (ended.code, ended.point(2)["status"]) == (5, "timeout"), ended.said
    assert "rank 1 is behind" in ended.point(2)["error"]
    assert "called by end at ending_odd.py:" in ended.point(2)["error"]


def test_crash_outside_python(start: Start, tmp_path: Path) -> None:
    args = ("--way", "segfault", "--steps", "40", "--rank", "1", "--out", str(tmp_path))
    ended = start("ending_odd.py", "--devices", "2", "--seconds", "10", args=args).end()
    # THEN the last frame of the script is told, and no frame of the tool
    assert ended.code == 5, ended.said
    error = ended.point(2)["error"]
    assert "rank 1 was killed by SIGSEGV after step 40" in error
    assert "called by read_address_zero at ending_odd.py:" in error
    assert "/sfbench/probe/" not in error
    assert "/sfbench/launch/" not in error


@pytest.mark.parametrize("way", ["os-exit", "closed"])
def test_ends_that_leave_the_measurement_whole(start: Start, tmp_path: Path, way: str) -> None:
    # GIVEN a script that ends by os._exit(0), or closes its standard streams
    args = ("--way", way, "--steps", "1500", "--out", str(tmp_path))
    seconds = "30" if way == "os-exit" else "0.5"
    ended = start("ending_odd.py", "--devices", "2", "--seconds", seconds, args=args).end()
    # THEN
    assert (ended.code, ended.point(2)["status"]) == (0, "ok"), ended.said


def test_a_hostile_message_steers_nothing(start: Start, tmp_path: Path) -> None:
    args = ("--way", "hostile", "--steps", "40", "--rank", "1", "--out", str(tmp_path))
    ended = start("ending_odd.py", "--devices", "2", args=args).end()
    everything = ended.said + json.dumps(ended.document, ensure_ascii=False)
    assert ended.code == 5
    assert "owned" in ended.point(2)["error"]
    assert not {"\x1b", "\u202e"} & set(everything)
    assert not any(line.lstrip().startswith("::") for line in everything.splitlines())
    assert len(everything) < 20_000


def test_killed_rank(start: Start, tmp_path: Path) -> None:
    # GIVEN a rank that tells its process number in the middle of training
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    args = ("--fault", "announce", "--fifo", str(fifo), "--out", str(tmp_path))
    sweep = start("ending_faulty.py", "--seconds", "4", "--precision", "0.0001", args=args)
    # WHEN
    os.kill(int(fifo.read_text()), signal.SIGKILL)
    # THEN
    check_failed(sweep.end(), "failed", "2 devices", "rank 1", "SIGKILL")


def test_ctrl_c_keeps_finished_points_and_leaves_no_process(start: Start, tmp_path: Path) -> None:
    # GIVEN a sweep in the middle of its second point
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    args = ("--fault", "announce", "--fifo", str(fifo), "--out", str(tmp_path))
    sweep = start("ending_faulty.py", "--seconds", "4", "--precision", "0.0001", args=args)
    rank = int(fifo.read_text())
    # WHEN
    family, asked_s = sweep.interrupt()
    ended = sweep.end()
    # THEN it ended in time, and all of it
    assert time.monotonic() - asked_s < 5.0
    assert ended.code == 130, ended.said
    assert rank in {process.pid for process in family}
    gone, alive = psutil.wait_procs(family, timeout=5.0)
    assert (len(gone), alive) == (len(family), [])
    # THEN the finished point is kept and the document says that it is not all
    check_one_device_kept(ended)
    assert ended.document["interrupted"]


@pytest.mark.parametrize(("code", "exit_code", "told"), [(0, 4, "no-steps"), (3, 5, "exit")])
def test_script_that_exits_at_once(start: Start, code: int, exit_code: int, told: str) -> None:
    ended = start("refused_exits.py", args=("--code", str(code))).end()
    assert ended.code == exit_code, ended.said
    assert {p["status"] for p in ended.document["points"]} == {"failed"}
    assert {p["samples_per_s"] for p in ended.document["points"]} == {None}
    words = {"no-steps": "without a single optimizer update", "exit": "code 3"}[told]
    assert words in ended.point(1)["error"]


def test_a_device_count_that_fails_does_not_stop_the_sweep(start: Start, tmp_path: Path) -> None:
    # GIVEN a global batch that 1, 2 and 4 devices divide, and 3 do not
    args = ("--out", str(tmp_path))
    options = ("--devices", "1,2,3,4", "--scaling", "strong", "--global-batch", "32")
    ended = start("for_loop.py", *options, args=args).end()
    # THEN
    assert ended.code == 5, ended.said
    assert [p["status"] for p in ended.document["points"]] == ["ok", "ok", "failed", "ok"]
    assert "not divisible by 3" in ended.point(3)["error"]
    batches = [p["batch_per_device"] for p in ended.document["points"]]
    assert batches == [32, 16, None, 8]


def test_two_sweeps_at_once(start: Start, tmp_path: Path) -> None:
    # GIVEN / WHEN two sweeps of the same script into the same folder of results
    args = ("--out", str(tmp_path))
    both = [start("for_loop.py", name=name, args=args) for name in ("first", "second")]
    ended = [sweep.end() for sweep in both]
    # THEN each has a result of its own
    assert [e.code for e in ended] == [0, 0], [e.said for e in ended]
    for one in ended:
        assert [p["status"] for p in one.document["points"]] == ["ok", "ok"]
        assert one.document["name"] == one.folder.name
        assert (one.folder / "steps.parquet").is_file()


def test_samples_per_s_are_those_of_a_stopwatch_in_the_script(start: Start, tmp_path: Path) -> None:
    # GIVEN a script that writes down when each of its steps has ended
    args = ("--out", str(tmp_path))
    ended = start("stopwatch.py", "--seconds", "2", "--allow-saves", args=args).end()
    assert ended.code == 0, ended.said
    # WHEN the same steps are timed by what it wrote
    times = np.fromfile(tmp_path / "times-1-0.f64")
    steps = pd.read_parquet(ended.folder / "steps.parquet")
    measured = steps[steps["measured"] & ~steps["warmup"] & (steps["devices"] == 1)]
    last = measured["step"].to_numpy()
    last = last[last < len(times)]  # the run ends within its last step
    by_hand = 16 * len(last) / (times[last] - times[last - 1]).sum()
    # THEN
    assert ended.point(1)["samples_per_s"]["value"] == pytest.approx(by_hand, rel=0.01)


def test_a_result_that_cannot_be_written_is_still_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a disk that is full once everything is measured
    def commit(folder: ResultFolder, result: SweepResult, steps: pd.DataFrame) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ResultFolder, "commit", commit)
    small = ("--devices", "1", "--rounds", "1", "--seconds", "0.5", "--rungs", "train")
    where = ("--output", str(tmp_path / "results"), "--name", "full", "--no-report")
    with pytest.raises(SystemExit) as end:
        app.main(["sweep", "emulated", *small, *where, "--device", "cpu"])
    # THEN
    told = capsys.readouterr()
    assert end.value.code == 2
    assert "samples/s" in told.out
    assert "full: the result cannot be written: No space left on device" in told.err
    assert list((tmp_path / "results").iterdir()) == []
