"""The two sides of a comparison, each in a git worktree of its own.

Base is a commit; candidate is the working tree as it is, uncommitted changes and new code included,
taken as a commit that no branch knows. Both are checked out detached in a temporary folder, so that
neither has a better place on disk. What else git does not track (data, say) is linked into both.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sfbench.common.errors import UsageError
from sfbench.gating.checkouts.candidate import tree_of, working_tree_commit
from sfbench.gating.checkouts.git import commit_of
from sfbench.gating.checkouts.untracked import untracked
from sfbench.gating.checkouts.worktrees import PREFIX, alive, forget_leftovers, worktree
from sfbench.gating.gate_report import ArmName


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
    if not identical and tree_of(root, base) == tree_of(root, candidate):
        raise UsageError(
            f"the working tree does not differ from {base_ref}: there is nothing to compare. "
            "New files other than Python code lie on both sides until they are staged (`git add`). "
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
    found = untracked(root)
    forget_leftovers(root)
    with (
        tempfile.TemporaryDirectory(prefix=PREFIX) as temporary,
        alive(Path(temporary)),
        worktree(found, Path(temporary).resolve() / "a", first) as a,
        worktree(found, Path(temporary).resolve() / "b", second) as b,
    ):
        yield a, b
