"""The few git commands that the gate needs, with errors that say what to do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sfbench.errors import UsageError


def git(folder: Path, *args: str, env: Mapping[str, str] | None = None) -> str:
    """Output of ``git <args>`` in a folder, without the last newline.

    Raises:
        UsageError: git is missing, or the command failed: its own words are in the text.
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **(env or {})},
        )
    except FileNotFoundError as error:
        raise UsageError("git is not installed: `sfbench gate --base` compares commits") from error
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise UsageError(f"git {args[0]} in {folder}: {words[-1] if words else 'failed'}")
    return done.stdout.rstrip("\n")


def root_of(path: Path) -> Path:
    """Top folder of the repository around a file.

    Raises:
        UsageError: there is none.
    """
    try:
        return Path(git(path.parent, "rev-parse", "--show-toplevel")).resolve()
    except UsageError as error:
        raise UsageError(
            f"{path} is not in a git repository: `--base` needs one to take the other side from. "
            "Use --baseline RESULT instead."
        ) from error


def commit_of(root: Path, ref: str) -> str:
    """The commit that a name means.

    Raises:
        UsageError: unknown; a shallow clone is named as the likely cause.
    """
    try:
        return git(
            root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )
    except UsageError as error:
        shallow = git(root, "rev-parse", "--is-shallow-repository") == "true"
        hint = (
            " This clone is shallow: fetch the whole history (in GitHub Actions: fetch-depth: 0)."
            if shallow
            else " Fetch it first, or give another --base."
        )
        raise UsageError(f"--base {ref}: no such commit in {root}.{hint}") from error


def changed_paths(root: Path, base: str) -> tuple[str, ...]:
    """Paths, relative to the root, in which the working tree differs from where it left the base.

    Commits since the merge base, changes not committed, and new files that are not ignored.
    """
    fork = git(root, "merge-base", base, "HEAD")
    tracked = git(root, "diff", "--name-only", "-z", fork).split("\0")
    new = git(root, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return tuple(sorted({path for path in (*tracked, *new) if path}))
