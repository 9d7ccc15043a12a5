"""The two sides of a comparison, each in a git worktree of its own.

Base is a commit; candidate is the working tree as it is, uncommitted changes and small new files
included, taken as a commit that no branch knows. Both are checked out detached in a temporary
folder, so that neither has a better place on disk. What git does not track (data, caches) is linked
into both.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sfbench.errors import UsageError
from sfbench.gate.git import commit_of, git
from sfbench.gate.model import ArmName

NEW_FILE_BYTES = 2**20
"""Untracked files up to this size are code and belong to the candidate; larger ones are data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side, checked out."""

    name: ArmName
    folder: Path
    """Top of its worktree."""
    root: Path
    """Top of the repository that it was taken from."""
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """Both sides of a comparison."""

    base: Arm
    candidate: Arm

    def get(self, name: ArmName) -> Arm:
        """One of the two."""
        return self.base if name == "base" else self.candidate


@contextlib.contextmanager
def checked_out(root: Path, base_ref: str, *, identical: bool = False) -> Iterator[Arms]:
    """Check both sides out; they are gone afterwards, on any exit.

    Byte-code caches lie in the checkouts, and so apart.

    Args:
        root: top of the repository.
        base_ref: what the candidate is compared with.
        identical: both sides are the working tree, for calibration.

    Raises:
        UsageError: no such commit; or base and working tree hold the same files.
    """
    candidate = working_tree_commit(root)
    base = candidate if identical else commit_of(root, base_ref)
    if not identical and _tree(root, base) == _tree(root, candidate):
        raise UsageError(
            f"the working tree does not differ from {base_ref}: there is nothing to compare. "
            "To see what this machine can tell apart, use `sfbench gate calibrate`."
        )
    with _two_worktrees(root, base, candidate) as (first, second):
        yield Arms(
            base=Arm(name="base", folder=first, root=root, commit=base),
            candidate=Arm(name="candidate", folder=second, root=root, commit=candidate),
        )


@contextlib.contextmanager
def swapped(arms: Arms) -> Iterator[Arms]:
    """The same sides in fresh worktrees, each in the other's place."""
    base, candidate = arms.base, arms.candidate
    with _two_worktrees(base.root, candidate.commit, base.commit) as (first, second):
        yield Arms(base=replace(base, folder=second), candidate=replace(candidate, folder=first))


@contextlib.contextmanager
def _two_worktrees(root: Path, first: str, second: str) -> Iterator[tuple[Path, Path]]:
    with (
        tempfile.TemporaryDirectory(prefix="sfbench-gate-") as temporary,
        _worktree(root, Path(temporary).resolve() / "a", first) as a,
        _worktree(root, Path(temporary).resolve() / "b", second) as b,
    ):
        yield a, b


def working_tree_commit(root: Path) -> str:
    """A commit of the working tree as it is; index, branches and files stay untouched."""
    head = commit_of(root, "HEAD")
    with tempfile.TemporaryDirectory(prefix="sfbench-index-") as temporary:
        env = {"GIT_INDEX_FILE": str(Path(temporary) / "index")}
        git(root, "read-tree", head, env=env)
        git(root, "add", "--update", ".", env=env)
        new = _small_new_files(root)
        if new:
            git(root, "add", "--", *new, env=env)
        tree = git(root, "write-tree", env=env)
    if tree == _tree(root, head):
        return head
    author = {
        "GIT_AUTHOR_NAME": "sfbench", "GIT_AUTHOR_EMAIL": "sfbench@localhost",
        "GIT_COMMITTER_NAME": "sfbench", "GIT_COMMITTER_EMAIL": "sfbench@localhost",
    }  # fmt: skip
    return git(root, "commit-tree", tree, "-p", head, "-m", "sfbench candidate", env=author)


def _small_new_files(root: Path) -> list[str]:
    return [path for path in _new_files(root) if _size(root / path) <= NEW_FILE_BYTES]


def _new_files(root: Path) -> list[str]:
    paths = git(root, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return [path for path in paths if path and (root / path).is_file()]


def _size(path: Path) -> int:
    return path.lstat().st_size


def _tree(root: Path, commit: str) -> str:
    return git(root, "rev-parse", f"{commit}^{{tree}}")


@contextlib.contextmanager
def _worktree(root: Path, beside: Path, commit: str) -> Iterator[Path]:
    """Check out below the folder ``beside``, under the repository's own name."""
    beside.mkdir()
    folder = beside / root.name
    git(root, "worktree", "add", "--detach", "--force", str(folder), commit)
    try:
        _link_untracked(root, folder)
        _link_neighbours(root, folder)
        yield folder
    finally:
        git(root, "worktree", "remove", "--force", "--force", str(folder))


def _link_untracked(root: Path, folder: Path) -> None:
    """Make data that git does not track reachable under its usual relative path."""
    listing = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    ignored = [path.rstrip("/") for path in git(root, *listing).split("\0")]
    data = [path for path in _new_files(root) if _size(root / path) > NEW_FILE_BYTES]
    for name in (*ignored, *data):
        link = folder / name
        if name and link.name != "__pycache__" and not (link.exists() or link.is_symlink()):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(root / name)


def _link_neighbours(root: Path, folder: Path) -> None:
    """The same for what stands beside the repository, as in ``--data ../images``."""
    for path in root.parent.iterdir():
        if path.name != root.name:
            (folder.parent / path.name).symlink_to(path)
