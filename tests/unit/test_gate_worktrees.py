"""Checkouts in real git repositories: gone on any exit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repositories import a_repository, run

from sfbench.common.errors import UsageError
from sfbench.gating.checkouts import worktrees
from sfbench.gating.checkouts.arms import checked_out
from sfbench.gating.checkouts.git import commit_of, git


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """One commit of train.py, ignored data, and a change that is not committed."""
    return a_repository(tmp_path)


@pytest.mark.parametrize("half", [False, True])
def test_an_interrupted_checkout_is_unregistered(
    repo: Path, monkeypatch: pytest.MonkeyPatch, half: bool
) -> None:
    # GIVEN Ctrl-C while git checks out, which may leave the half of it
    def interrupted(folder: Path, *args: str) -> str:
        said = git(folder, *args)
        if args[:2] == ("worktree", "add"):
            if half:
                (Path(args[4]) / ".git").unlink()
            raise KeyboardInterrupt
        return said

    monkeypatch.setattr(worktrees, "git", interrupted)
    (repo / "train.py").write_text("print(2)\n")
    with pytest.raises(KeyboardInterrupt), checked_out(repo, "main"):
        pass
    assert run(repo, "worktree", "list").count("\n") == 0


def test_a_checkout_that_fails_says_why(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / "train.py").write_text("print(2)\n")
    (repo / ".git" / "worktrees").write_text("in the way")
    with pytest.raises(UsageError, match="git worktree in "), checked_out(repo, "main"):
        pass


KILLED = """
import os, sys
from pathlib import Path
from sfbench.gating.checkouts.arms import checked_out
with checked_out(Path(sys.argv[1]), "main") as arms:
    print(arms.base.folder, flush=True)
    os._exit(9)
"""


def test_leftovers_of_a_killed_gate_are_forgotten_and_no_others(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a gate that was killed, whose folder was cleared away; a worktree of the person on a
    # drive that is not mounted
    (repo / "train.py").write_text("print(2)\n")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(repo)], stdout=subprocess.PIPE, text=True, check=False
    )
    shutil.rmtree(Path(killed.stdout.strip()).parents[1])
    run(repo, "worktree", "add", "-q", "--detach", str(tmp_path / "drive"))
    shutil.rmtree(tmp_path / "drive")
    assert run(repo, "worktree", "list").count("\n") == 3
    # WHEN a gate runs on another machine, whose temporary folder is not this one's, THEN all stay
    with monkeypatch.context() as other:
        other.setattr("socket.gethostname", lambda: "elsewhere")
        with checked_out(repo, "main"):
            pass
    assert run(repo, "worktree", "list").count("\n") == 3
    # AND here the leftovers go
    with checked_out(repo, "main"):
        pass
    (left,) = run(repo, "worktree", "list").splitlines()[1:]
    assert left.startswith(str(tmp_path / "drive"))


def test_the_folder_of_a_killed_gate_goes_with_the_next_one(repo: Path) -> None:
    (repo / "train.py").write_text("print(2)\n")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(repo)], stdout=subprocess.PIPE, text=True, check=False
    )
    left = Path(killed.stdout.strip()).parents[1]
    # GIVEN beside it a gate that runs
    with checked_out(repo, "main") as alive:
        assert not left.exists()
        with checked_out(repo, "main"):
            assert alive.base.folder.exists()
        assert alive.base.folder.exists()
    assert run(repo, "worktree", "list").count("\n") == 0


def test_what_cannot_be_a_base_is_told(repo: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--base is empty"):
        commit_of(repo, " ")
    (tmp_path / "unborn").mkdir()
    run(tmp_path / "unborn", "init", "-q")
    with pytest.raises(UsageError, match="no commit yet"):
        commit_of(tmp_path / "unborn", "HEAD")
