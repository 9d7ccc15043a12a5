"""Exit codes of what nobody planned: defects, full disks, readers that went away."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gate_commands import BASE, SLOWER, Gate

from sfbench.cli import app
from sfbench.gating import runner

SFBENCH = Path(sys.executable).with_name("sfbench")


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (RuntimeError("odd"), 4, "RuntimeError: odd\nsfbench: this is a defect of sfbench itself"),
        (EOFError("odd"), 4, "EOFError: odd\nsfbench: this is a defect"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 4, "sfbench: this is a defect"),
        (OSError("odd"), 4, "OSError: odd\nsfbench: this is a defect"),
        (OSError(errno.EACCES, "Permission denied", "a/b"), 2, "sfbench: a/b: Permission denied\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "sfbench: No space left on device\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_no_error_is_taken_for_a_regression(
    repo: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, told: str
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(runner, "gate_commit", fail)
    ended = gate(*BASE)
    assert (ended.code, ended.out) == (code, "")
    assert told in ended.err
    assert ("Traceback" in ended.err) is (code == 4)


@pytest.fixture
def nobody_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """stdout is a pipe whose reader has ended."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        yield
        monkeypatch.undo()


def test_the_verdict_outlives_the_reader(repo: Path, nobody_reads: None) -> None:
    (repo / "train.py").write_text(SLOWER)
    with pytest.raises(SystemExit) as end:
        app.main(["gate", "train.py", *BASE, "--junit", "gate.xml"])
    assert end.value.code == 1
    assert "REGRESSION" in (repo / "gate.xml").read_text()


@pytest.mark.parametrize(
    "words",
    ["workloads", "--help", "gate --help", "workloads 2>&1", "workloads >&-", "workloads >&- 2>&-"],
)
def test_a_reader_that_goes_away_is_no_failure(words: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{SFBENCH} {words} | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_result_that_stdout_does_not_take_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [SFBENCH, "workloads"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "sfbench: stdout: cannot be written: No space left on device\n"


def test_wrong_words_end_as_click_ends_them() -> None:
    done = subprocess.run([SFBENCH, "swep"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "No such command" in done.stderr
