"""Sides of a comparison in real git repositories."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from sfbench.errors import UsageError
from sfbench.gate import worktrees
from sfbench.gate.arms import checked_out, swapped
from sfbench.gate.candidate import working_tree_commit
from sfbench.gate.git import changed_paths, commit_of, contains, fork_of, git, root_of
from sfbench.gate.links import link_neighbours
from sfbench.gate.schedule import pair_orders


def run(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True)
    return done.stdout.decode().strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """One commit of train.py, ignored data, and a change that is not committed."""
    root = tmp_path / "repo"
    (root / "pkg").mkdir(parents=True)
    run(tmp_path, "init", "-q", "-b", "main", str(root))
    run(root, "config", "user.email", "test@localhost")
    run(root, "config", "user.name", "test")
    (root / "train.py").write_text("print(1)\n")
    (root / "pkg" / "loader.py").write_text("SIZE = 1\n")
    (root / ".gitignore").write_text("data/\n")
    run(root, "add", ".")
    run(root, "commit", "-q", "-m", "first")
    (root / "data").mkdir()
    (root / "data" / "big.bin").write_bytes(b"x")
    return root


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


# ---- the candidate -------------------------------------------------------------------------------


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def candidate_files(root: Path) -> dict[str, str]:
    """Mode of every file in the candidate."""
    lines = run(root, "ls-tree", "-r", working_tree_commit(root)).splitlines()
    return {line.split("\t")[1]: line.split()[0] for line in lines}


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


# ---- what is not tracked -------------------------------------------------------------------------


def test_new_code_is_the_candidates_whatever_its_size(repo: Path) -> None:
    (repo / "table.py").write_text(f"TABLE = '{'x' * 2**21}'\n")
    (repo / "fast.abi3.so").write_text("machine code")
    with checked_out(repo, "main") as arms:
        for name in ("table.py", "fast.abi3.so"):
            assert not (arms.base.folder / name).exists()
            assert not (arms.candidate.folder / name).is_symlink()
            assert (arms.candidate.folder / name).is_file()


def test_what_else_is_new_is_reachable_from_both(repo: Path, tmp_path: Path) -> None:
    # GIVEN small files, a large one, a link to data elsewhere, and a nested repository
    write(repo, {"jpgs/cat/1.jpg": "1", "pkg/nested/2.jpg": "2", "names.csv": "3"})
    (repo / "rows.bin").write_bytes(bytes(2**20 + 1))
    write(tmp_path / "imagenet", {"4.jpg": "4"})
    shutil.rmtree(repo / "data")
    (repo / "data").symlink_to(tmp_path / "imagenet")
    run(tmp_path, "init", "-q", str(repo / "lib"))
    write(repo, {"lib/lib.py": "LIB = 1\n"})
    (repo / "train.py").write_text("print(2)\n")
    with checked_out(repo, "main") as arms:
        for arm in (arms.base, arms.candidate):
            assert (arm.folder / "jpgs" / "cat" / "1.jpg").read_text() == "1"
            assert (arm.folder / "pkg" / "nested" / "2.jpg").read_text() == "2"
            assert (arm.folder / "names.csv").read_text() == "3"
            assert (arm.folder / "rows.bin").stat().st_size == 2**20 + 1
            assert (arm.folder / "data" / "4.jpg").read_text() == "4"
            assert (arm.folder / "lib" / "lib.py").is_file()
    assert (repo / "jpgs" / "cat" / "1.jpg").read_text() == "1"


def test_a_folder_of_new_code_and_data_is_parted(repo: Path) -> None:
    write(repo, {
        "new/code.py": "NEW = 1\n", "new/deep/more.py": "NEW = 2\n", "new/deep/rows.bin": "rows",
        "new/jpgs/1.jpg": "1", "alone/code.py": "NEW = 3\n",
    })  # fmt: skip
    with checked_out(repo, "main") as arms:
        base, candidate = arms.base.folder, arms.candidate.folder
        assert (candidate / "new" / "code.py").is_file()
        assert not (base / "new" / "code.py").exists()
        for folder in (base, candidate):
            assert (folder / "new" / "jpgs").is_symlink()
            assert (folder / "new" / "deep" / "rows.bin").read_text() == "rows"
        # Python could import an empty folder
        assert not (base / "alone").exists()


def test_byte_code_is_never_linked(repo: Path) -> None:
    (repo / ".gitignore").write_text("data/\n__pycache__/\nold.pyc\n")
    write(repo, {
        "pkg/__pycache__/loader.pyc": "", "old.pyc": "", "new.pyc": "", "mix/1.jpg": "1",
        "mix/__pycache__/x.pyc": "", "mix/deep/new.pyc": "", "left/__pycache__/x.pyc": "",
    })  # fmt: skip
    with checked_out(repo, "main") as arms:
        for arm in (arms.base, arms.candidate):
            found = [*arm.folder.rglob("*.pyc"), *arm.folder.rglob("__pycache__")]
            assert (found, (arm.folder / "mix" / "1.jpg").read_text()) == ([], "1")
            assert not (arm.folder / "left").exists()


def test_what_the_checkout_has_is_not_covered(repo: Path) -> None:
    # GIVEN folders that the base tracks, one of them in place of a link, and the candidate does not
    write(repo, {"conf/a.yaml": "base", "conf/deep/b.yaml": "base", "lib/x.cfg": "base"})
    (repo / "link").symlink_to("pkg")
    run(repo, "add", ".")
    run(repo, "commit", "-qm", "second")
    run(repo, "rm", "-rq", "--cached", "conf", "lib", "link")
    run(repo, "commit", "-qm", "third")
    (repo / "link").unlink()
    write(repo, {"conf/a.yaml": "mine", "conf/deep/c.yaml": "mine", "link/y.cfg": "mine"})
    run(repo, "init", "-q", "lib")
    with checked_out(repo, "HEAD~1") as arms:
        base, candidate = arms.base.folder, arms.candidate.folder
        assert (base / "conf" / "a.yaml").read_text() == "base"
        assert (base / "conf" / "deep" / "b.yaml").read_text() == "base"
        assert (base / "conf" / "deep" / "c.yaml").read_text() == "mine"
        assert (base / "lib" / "x.cfg").read_text() == "base"
        assert not (base / "lib" / ".git").exists()
        assert (base / "link").readlink() == Path("pkg")
        assert (candidate / "conf" / "a.yaml").read_text() == "mine"
        assert (candidate / "link" / "y.cfg").read_text() == "mine"
    assert not (repo / "pkg" / "y.cfg").exists()


def test_thousands_of_new_files_are_one_link(repo: Path) -> None:
    (repo / "jpgs").mkdir()
    for number in range(2_000):
        (repo / "jpgs" / f"{number}.jpg").touch()
    (repo / "train.py").write_text("print(2)\n")
    with checked_out(repo, "main") as arms:
        assert (arms.base.folder / "jpgs").is_symlink()
        assert (arms.base.folder / "jpgs" / "1999.jpg").is_file()


def test_a_folder_above_that_cannot_be_listed_is_passed_over(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as for anyone but root, for whom no folder is unreadable
    whole = Path.iterdir

    def refused(folder: Path) -> Iterator[Path]:
        if folder == repo.parent:
            raise PermissionError(13, "Permission denied", str(folder))
        return whole(folder)

    (repo / "train.py").write_text("print(2)\n")
    monkeypatch.setattr(Path, "iterdir", refused)
    with checked_out(repo, "main") as arms:
        assert (arms.base.folder / "train.py").is_file()
        assert list(whole(arms.base.folder.parent)) == [arms.base.folder]


def test_nothing_is_beside_a_repository_at_the_top(tmp_path: Path) -> None:
    (tmp_path / "a" / "root").mkdir(parents=True)
    link_neighbours(Path("/"), tmp_path / "a" / "root")
    assert list((tmp_path / "a").iterdir()) == [tmp_path / "a" / "root"]


# ---- worktrees -----------------------------------------------------------------------------------


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
from sfbench.gate.arms import checked_out
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


# ---- commits -------------------------------------------------------------------------------------


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
