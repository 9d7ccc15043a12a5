"""Two views of one command share caches, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sfbench.guard.client import Guard, wanted_for
from sfbench.guard.enter import enter
from sfbench.guard.ticket import Ticket


def inside(ticket: Ticket, do: Callable[[], bool]) -> bool:
    """Run something in a process of its own under a guard; True where it says so."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            enter(ticket)
            code = 0 if do() else 1
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def test_views_share_caches_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a home with a cache, and one that is not there yet
    home, real = tmp_path / "home", tmp_path / "launch"
    (home / ".cache").mkdir(parents=True)
    (home / ".cache" / "old").write_text("the user's")
    real.mkdir()
    for name, value in (("HOME", home), ("XDG_STATE_HOME", tmp_path / "state")):
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def first() -> bool:
        (home / ".cache" / "new").write_text("downloaded")
        (home / ".cache" / "old").unlink()
        (home / ".triton").mkdir(exist_ok=True)
        (home / ".triton" / "kernel").write_text("compiled")
        (home / "model.pt").write_text("saved")
        (real / "record").write_text("told")
        return not (home / ".cache" / "old").exists()

    def second() -> bool:
        caches = [home / ".cache" / "new", home / ".triton" / "kernel"]
        return all(path.exists() for path in caches) and not (home / "model.pt").exists()

    guard = Guard()
    try:
        # WHEN a launch writes, and another follows
        for do in (first, second):
            with guard.launch(wanted_for("train.py", (), str(real))) as ticket:
                assert ticket.kind == "overlay"
                assert inside(ticket, do)
    finally:
        guard.close()
    # THEN the home is as it was; what is the tool's own is there
    assert (home / ".cache" / "old").read_text() == "the user's"
    left = {str(path.relative_to(home)) for path in home.rglob("*")}
    assert left == {".cache", ".cache/old", ".cache/sfbench"}
    assert (real / "record").read_text() == "told"
