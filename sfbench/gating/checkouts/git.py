"""The few git commands that the gate needs, with errors that say what to do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path

from sfbench.common.errors import UsageError

NOT_INHERITED = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)  # fmt: skip
"""Set if the gate runs in a git hook: they would point every command at that one folder."""
NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""Checking a side out must not run what the repository does after a checkout."""
IMPORTED = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)
"""Files that Python imports end in one of these; byte code is left to its source."""


def git(
    folder: Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    allowed: Sequence[int] = (0,),
    paths: Iterable[str] = (),
) -> str:
    """Output of ``git <args>`` in a folder, without the last newline.

    ``allowed``: exit codes that are no failure. ``paths``: written to its standard input, each with
    a NUL behind it: there may be more than a command line holds. A file name that is not text in
    this locale comes through as it does in ``os.listdir``.

    Raises:
        UsageError: git is missing, or the command failed: its own words are in the text.
    """
    try:
        done = subprocess.run(
            ["git", *NO_HOOKS, "-C", str(folder), *args],
            input=b"".join(os.fsencode(path) + b"\0" for path in paths),
            capture_output=True,
            check=False,
            env={**_environment(), **(env or {})},
        )
    except FileNotFoundError as error:
        raise UsageError("git is not installed: `sfbench gate --base` compares commits") from error
    if done.returncode not in allowed:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"git {args[0]} in {folder}: {words[-1] if words else 'failed'}")
    return os.fsdecode(done.stdout).rstrip("\n")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}


def listed(folder: Path, *args: str, env: Mapping[str, str] | None = None) -> list[str]:
    """Paths that a git command lists, whatever characters they are made of."""
    return [path for path in git(folder, *args, "-z", env=env).split("\0") if path]


def root_of(path: Path) -> Path:
    """Top folder of the repository around a file.

    Raises:
        UsageError: there is none.
    """
    try:
        return Path(git(path.parent, "rev-parse", "--show-toplevel")).resolve()
    except UsageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise  # git is missing, not the repository
        if "dubious ownership" in str(error):
            raise UsageError(
                f"{path} is in a repository of another user, which git does not trust: "
                f"git config --global --add safe.directory {path.parent}"
            ) from error
        raise UsageError(
            f"{path} is not in a git repository: `--base` needs one to take the other side from. "
            "Use --baseline RESULT instead."
        ) from error


def commit_of(root: Path, ref: str) -> str:
    """The commit that a name means.

    Raises:
        UsageError: unknown; a shallow clone is named as the likely cause.
    """
    if not ref.strip():
        raise UsageError("--base is empty: give a branch, a tag or a commit to compare with")
    try:
        return git(
            root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )
    except UsageError as error:
        if ref == "HEAD":
            raise UsageError(f"{root} has no commit yet: make one first") from error
        shallow = git(root, "rev-parse", "--is-shallow-repository") == "true"
        hint = (
            " This clone is shallow: fetch the whole history (in GitHub Actions: fetch-depth: 0)."
            if shallow
            else " Fetch it first, or give another --base."
        )
        raise UsageError(f"--base {ref}: no such commit in {root}.{hint}") from error


def fork_of(root: Path, base: str) -> str:
    """The last commit that ``base`` and what is checked out have in common.

    Raises:
        UsageError: they have none.
    """
    try:
        return git(root, "merge-base", base, "HEAD")
    except UsageError as error:
        raise UsageError(
            f"--base {base}: nothing in common with what is checked out in {root}. Give another "
            "--base, or fetch more history (in GitHub Actions: fetch-depth: 0)."
        ) from error


def contains(root: Path, commit: str) -> bool:
    """Whether what is checked out has a commit in its history."""
    return commit in git(root, "merge-base", "--all", commit, "HEAD", allowed=(0, 1)).split("\n")


def new_code(root: Path) -> list[str]:
    """New files, neither tracked nor ignored, that Python can import, relative to the root."""
    # a nested repository is listed as a folder, with a slash behind it
    return [
        path
        for path in listed(root, "ls-files", "--others", "--exclude-standard")
        if path.endswith(IMPORTED)
    ]


def changed_paths(root: Path, base: str) -> tuple[str, ...]:
    """Paths, relative to the root, in which the working tree differs from where it left the base.

    Commits since the merge base, changes not committed, and new code; of a renamed file both names.
    """
    fork = fork_of(root, base)
    return tuple(sorted({*differing(root, fork), *new_code(root)}))


def differing(root: Path, *commits: str) -> list[str]:
    """Paths in which two commits differ, or one and the working tree; of a renamed file both.

    Submodules are left out, as they are in checkouts.
    """
    return listed(root, "diff", "--name-only", "--no-renames", "--ignore-submodules", *commits)
