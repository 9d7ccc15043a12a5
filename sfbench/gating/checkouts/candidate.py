"""The working tree as it is, as a commit that no branch knows."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sfbench.gating.checkouts.git import commit_of, git, listed, new_code

AUTHOR = {
    "GIT_AUTHOR_NAME": "sfbench", "GIT_AUTHOR_EMAIL": "sfbench@localhost",
    "GIT_COMMITTER_NAME": "sfbench", "GIT_COMMITTER_EMAIL": "sfbench@localhost",
}  # fmt: skip


def working_tree_commit(root: Path) -> str:
    """A commit of the working tree as it is; index, branches and files stay untouched.

    What the person's index tracks belongs to it, staged new files included, with the content that
    the working tree has; and new code.
    """
    head = commit_of(root, "HEAD")
    with tempfile.TemporaryDirectory(prefix="sfbench-index-") as temporary:
        env = {"GIT_INDEX_FILE": str(Path(temporary) / "index")}
        _copy_index(root, head, env)
        _see_all(root, env)
        git(root, "add", "--update", env=env)
        # a file that is gone by now is left out
        _update_index(root, env, "--add", "--remove", paths=new_code(root))
        tree = git(root, "write-tree", env=env)
    if tree == tree_of(root, head):
        return head
    return git(root, "commit-tree", tree, "-p", head, "-m", "sfbench candidate", env=AUTHOR)


def tree_of(root: Path, commit: str) -> str:
    """The files of a commit, as git names them."""
    return git(root, "rev-parse", f"{commit}^{{tree}}")


def _copy_index(root: Path, head: str, env: Mapping[str, str]) -> None:
    index = root / git(root, "rev-parse", "--git-path", "index")
    if index.exists():
        # With its time: git looks again at files that are no older than their index.
        shutil.copy2(index, env["GIT_INDEX_FILE"])
    else:
        git(root, "read-tree", head, env=env)


def _see_all(root: Path, env: Mapping[str, str]) -> None:
    """Let git look at files that the person told it to pass over, if they exist."""
    tagged = [entry.split(" ", 1) for entry in listed(root, "ls-files", "-v", env=env)]
    there = [(tag, path) for tag, path in tagged if tag not in "HM" and _exists(root / path)]
    unchanged = [path for tag, path in there if tag.islower()]
    skipped = [path for tag, path in there if tag in "Ss"]
    _update_index(root, env, "--no-assume-unchanged", paths=unchanged)
    _update_index(root, env, "--no-skip-worktree", paths=skipped)


def _exists(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def _update_index(root: Path, env: Mapping[str, str], *options: str, paths: list[str]) -> None:
    if paths:
        git(root, "update-index", *options, "-z", "--stdin", env=env, paths=paths)
