"""Sides of a comparison, and the commits that they are taken from, in real git repositories."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from repositories import a_repository, run

from sfbench.common.errors import UsageError
from sfbench.gating.checkouts.arms import checked_out, swapped
from sfbench.gating.checkouts.git import changed_paths, commit_of, contains, fork_of, root_of
from sfbench.gating.statistics.schedule import pair_orders


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """One commit of train.py, ignored data, and a change that is not committed."""
    return a_repository(tmp_path)


def test_the_candidate_is_the_working_tree_as_it_is(repo: Path) -> None:
    # GIVEN a change, a new file and data that git ignores
    (repo / "train.py").write_text("print(2)\n")
    (repo / "pkg" / "new.py").write_text("NEW = 1\n")
    before = run(repo, "status", "--porcelain")
    # WHEN
    with checked_out(repo, "main") as arms:
        base, candidate = arms.base.folder, arms.candidate.folder
        # THEN
        assert (base / "train.py").read_text() == "print(1)\n"
        assert (candidate / "train.py").read_text() == "print(2)\n"
        assert not (base / "pkg" / "new.py").exists()
        assert (candidate / "pkg" / "new.py").is_file()
        assert (base / "data" / "big.bin").read_bytes() == b"x"
        assert (candidate / "data" / "big.bin").read_bytes() == b"x"
        with swapped(arms) as other:
            assert other.base.folder.parent.name == "b"
            assert (other.base.folder / "train.py").read_text() == "print(1)\n"
    # AND nothing is left behind, nothing was touched
    assert not base.exists()
    assert run(repo, "worktree", "list").count("\n") == 0
    assert run(repo, "status", "--porcelain") == before
    assert (repo / "data" / "big.bin").exists()


def test_worktrees_are_gone_after_an_error(repo: Path) -> None:
    (repo / "train.py").write_text("print(2)\n")
    with pytest.raises(RuntimeError), checked_out(repo, "main"):
        raise RuntimeError
    assert run(repo, "worktree", "list").count("\n") == 0


def test_the_same_code_is_refused_but_for_calibration(repo: Path) -> None:
    with pytest.raises(UsageError, match="nothing to compare"), checked_out(repo, "main"):
        pass
    with checked_out(repo, "main", identical=True) as arms:
        assert arms.base.commit == arms.candidate.commit


def test_what_lies_beside_the_repository_stays_reachable(repo: Path) -> None:
    (repo.parent / "images").mkdir()
    (repo / "train.py").write_text("print(2)\n")
    with checked_out(repo, "main") as arms:
        assert (arms.base.folder / ".." / "images").samefile(repo.parent / "images")
        assert arms.candidate.folder.name == repo.name
    assert (repo.parent / "images").is_dir()


def test_no_hook_runs_and_no_folder_is_inherited(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a gate that runs in a hook, in a repository with a hook of its own
    hook = repo / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(repo / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repo / "elsewhere" / "index"))
    (repo / "train.py").write_text("print(2)\n")
    with checked_out(repo, "main") as arms:
        assert not (arms.base.folder / "ran").exists()


def test_a_base_that_has_moved_on_is_told(repo: Path) -> None:
    fork = run(repo, "rev-parse", "HEAD")
    assert contains(repo, fork)
    run(repo, "checkout", "-q", "-b", "work")
    (repo / "train.py").write_text("print(2)\n")
    run(repo, "commit", "-qam", "second")
    run(repo, "checkout", "-q", "main")
    ahead = run(repo, "rev-parse", "work")
    assert not contains(repo, ahead)
    assert fork_of(repo, ahead) == fork


def test_histories_with_nothing_in_common(repo: Path) -> None:
    run(repo, "checkout", "-q", "--orphan", "other")
    run(repo, "commit", "-qm", "other")
    assert not contains(repo, run(repo, "rev-parse", "main"))
    with pytest.raises(UsageError, match="nothing in common"):
        changed_paths(repo, "main")


def test_an_unknown_base_is_named(repo: Path) -> None:
    with pytest.raises(UsageError, match="--base origin/main: no such commit"):
        commit_of(repo, "origin/main")


def test_a_shallow_clone_is_named_as_the_cause(repo: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    run(tmp_path, "clone", "-q", "--depth", "1", f"file://{repo}", str(clone))
    with pytest.raises(UsageError, match="shallow"):
        commit_of(clone, "HEAD~1")


def test_no_repository(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    with pytest.raises(UsageError, match="not in a git repository"):
        root_of(script)


def test_changed_paths_are_commits_changes_and_new_files(repo: Path) -> None:
    run(repo, "checkout", "-q", "-b", "work")
    (repo / "pkg" / "loader.py").write_text("SIZE = 2\n")
    run(repo, "commit", "-qam", "second")
    (repo / "train.py").write_text("print(2)\n")
    (repo / "new.py").touch()
    assert changed_paths(repo, "main") == ("new.py", "pkg/loader.py", "train.py")


def test_both_names_of_a_renamed_file_have_changed(repo: Path) -> None:
    run(repo, "mv", "train.py", "main.py")
    assert changed_paths(repo, "main") == ("main.py", "train.py")


def test_orders_are_balanced_over_every_two_pairs() -> None:
    orders = list(islice(pair_orders(seed=3), 40))
    for one, two in zip(orders[::2], orders[1::2], strict=True):
        assert {one, two} == {("base", "candidate"), ("candidate", "base")}
    assert len({orders[n] for n in range(0, 40, 2)}) == 2
