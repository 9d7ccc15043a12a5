"""What belongs to the candidate: the working tree, as git and the person see it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from repositories import a_repository, candidate_files, run, write

from sfbench.gating.checkouts.arms import checked_out
from sfbench.gating.checkouts.candidate import working_tree_commit
from sfbench.gating.checkouts.git import changed_paths


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """One commit of train.py, ignored data, and a change that is not committed."""
    return a_repository(tmp_path)


def test_what_is_staged_belongs_to_the_candidate(repo: Path) -> None:
    # GIVEN new files that are staged, also against .gitignore, or announced; one is gone again
    write(repo, {"a.yaml": "1", "data/b.yaml": "1", "c.yaml": "1", "gone.yaml": "1"})
    run(repo, "add", "a.yaml")
    run(repo, "add", "-f", "data/b.yaml")
    run(repo, "add", "-N", "c.yaml", "gone.yaml")
    (repo / "gone.yaml").unlink()
    (repo / "a.yaml").write_text("2")
    before = run(repo, "status", "--porcelain")
    # WHEN
    with checked_out(repo, "main") as arms:
        base, candidate = arms.base.folder, arms.candidate.folder
        # THEN it has them as they lie in the working tree, and the base does not
        assert (candidate / "a.yaml").read_text() == "2"
        assert (candidate / "data" / "b.yaml").read_text() == "1"
        assert (candidate / "c.yaml").read_text() == "1"
        assert not (candidate / "gone.yaml").exists()
        assert not (base / "a.yaml").exists()
        assert (candidate / "data" / "big.bin").read_bytes() == b"x"
    assert run(repo, "status", "--porcelain") == before


def test_staged_deletions_renames_and_modes(repo: Path) -> None:
    write(repo, {"old.cfg": "a\n", "tool.sh": "b\n", "kept.cfg": "c\n", "kept.py": "d\n"})
    run(repo, "add", ".")
    run(repo, "commit", "-qm", "second")
    run(repo, "mv", "old.cfg", "new.cfg")
    run(repo, "rm", "-q", "pkg/loader.py")
    run(repo, "rm", "-q", "--cached", "kept.cfg", "kept.py")
    (repo / "tool.sh").chmod(0o755)
    # a file that is no longer tracked is a new one: code goes along, all else is on both sides
    assert candidate_files(repo) == {
        ".gitignore": "100644", "kept.py": "100644", "new.cfg": "100644", "tool.sh": "100755",
        "train.py": "100644",
    }  # fmt: skip
    with checked_out(repo, "HEAD") as arms:
        assert (arms.candidate.folder / "kept.cfg").is_symlink()
        assert not (arms.base.folder / "kept.cfg").is_symlink()


def test_a_merge_under_way_is_taken_as_it_lies_there(repo: Path) -> None:
    run(repo, "checkout", "-q", "-b", "work")
    (repo / "train.py").write_text("print('work')\n")
    run(repo, "commit", "-qam", "work")
    run(repo, "checkout", "-q", "main")
    (repo / "train.py").write_text("print('main')\n")
    run(repo, "commit", "-qam", "main")
    with pytest.raises(subprocess.CalledProcessError):
        run(repo, "merge", "-q", "work")
    (repo / "train.py").write_text("print('both')\n")
    assert run(repo, "show", f"{working_tree_commit(repo)}:train.py") == "print('both')"
    assert run(repo, "status", "--porcelain") == "UU train.py"


def test_without_an_index_the_last_commit_is_the_start(repo: Path) -> None:
    (repo / ".git" / "index").unlink()
    assert working_tree_commit(repo) == run(repo, "rev-parse", "HEAD")
    assert not (repo / ".git" / "index").exists()


def test_a_change_as_old_as_the_index_is_seen(repo: Path) -> None:
    # GIVEN a file that changed after it was staged, in the same second and to the same size
    run(repo, "config", "core.trustctime", "false")
    times_ns = (1_700_000_000_000_000_000,) * 2
    os.utime(repo / "train.py", ns=times_ns)
    run(repo, "update-index", "--refresh")
    (repo / "train.py").write_text("print(2)\n")
    for path in (repo / "train.py", repo / ".git" / "index"):
        os.utime(path, ns=times_ns)
    assert run(repo, "show", f"{working_tree_commit(repo)}:train.py") == "print(2)"


@pytest.mark.parametrize("told", ["--assume-unchanged", "--skip-worktree"])
def test_a_change_that_git_was_told_to_pass_over_is_seen(repo: Path, told: str) -> None:
    run(repo, "update-index", told, "train.py")
    (repo / "train.py").write_text("print('mine')\n")
    assert run(repo, "show", f"{working_tree_commit(repo)}:train.py") == "print('mine')"


def test_files_of_a_sparse_checkout_are_not_taken_for_deleted(repo: Path) -> None:
    run(repo, "sparse-checkout", "set", "--no-cone", "/train.py")
    assert not (repo / "pkg").exists()
    write(repo, {"pkg/new.py": "NEW = 1\n"})
    assert set(candidate_files(repo)) == {
        ".gitignore", "pkg/loader.py", "pkg/new.py", "train.py",
    }  # fmt: skip


def test_names_of_any_kind_are_taken_literally(repo: Path) -> None:
    # GIVEN names that are patterns to git, and one that is no text
    names = [":(top)x.py", "*.py", "[a].py", "new\nline.py", os.fsdecode(b"caf\xe9.py")]
    for name in names:
        (repo / name).write_text("NEW = 1\n")
    (repo / os.fsdecode(b"\xff.bin")).write_text("data")
    # THEN all are the candidate's
    with checked_out(repo, "main") as arms:
        for name in names:
            assert (arms.candidate.folder / name).is_file()
            assert not (arms.base.folder / name).exists()
        assert (arms.base.folder / os.fsdecode(b"\xff.bin")).read_text() == "data"
    assert set(changed_paths(repo, "main")) == set(names)


def test_more_new_files_than_a_command_line_holds(repo: Path) -> None:
    folder = repo / "pkg" / ("long" * 50)
    folder.mkdir()
    for number in range(11_000):
        (folder / f"{number}.py").touch()
    assert len(candidate_files(repo)) == 3 + 11_000


def test_a_folder_in_place_of_a_tracked_file(repo: Path) -> None:
    (repo / "train.py").unlink()
    write(repo, {"train.py/new.py": "NEW = 1\n", "train.py/rows.bin": "rows"})
    with checked_out(repo, "main") as arms:
        assert (arms.base.folder / "train.py").read_text() == "print(1)\n"
        assert (arms.candidate.folder / "train.py" / "new.py").is_file()
        assert (arms.candidate.folder / "train.py" / "rows.bin").is_symlink()
