"""What git does not track, made reachable from a checkout under its usual relative path."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from sfbench.gating.checkouts.git import listed, new_code

BYTE_CODE = ".pyc"
CACHE = "__pycache__"
UNTRACKED = ("ls-files", "--others")
FOLDERS = "--directory"
"""A folder in which nothing is tracked is listed as one, and not looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Untracked:
    """What lies in the repository and is not tracked."""

    root: Path
    entries: tuple[str, ...]
    """Files, links, nested repositories, and folders in which nothing is tracked."""
    apart: frozenset[str]
    """Files that belong to one side only, and byte code: never linked."""
    mixed: frozenset[str]
    """Folders with such a file: linked piece by piece, any other as one."""


def untracked(root: Path) -> Untracked:
    """Look at a repository; ignored folders, which may be large, are not looked into."""
    known = ("--exclude-standard",)
    ignored = listed(root, *UNTRACKED, "--ignored", *known, FOLDERS)
    others = tuple(map(_no_slash, listed(root, *UNTRACKED, *known)))
    byte_code = [path for path in (*map(_no_slash, ignored), *others) if _is_byte_code(path)]
    apart = frozenset((*new_code(root), *byte_code))
    above = {str(folder) for path in apart for folder in PurePath(path).parents}
    entries = dict.fromkeys(map(_no_slash, listed(root, *UNTRACKED, FOLDERS)))
    # a folder in the place of a tracked file is not listed as one
    missing = [path for path in others if not any(part in entries for part in _and_above(path))]
    return Untracked(
        root=root,
        entries=(*entries, *missing),
        apart=apart,
        mixed=frozenset(above),
    )


def _no_slash(path: str) -> str:
    """Folders are listed with a slash behind them."""
    return path.rstrip("/")


def _and_above(path: str) -> Iterator[str]:
    """``a/b/c``, ``a/b`` and ``a``."""
    while path:
        yield path
        path = posixpath.dirname(path)


def link_untracked(found: Untracked, checkout: Path) -> None:
    """Link all of it into a checkout, where that has nothing at the path."""
    blocked = _blocked(found.entries, checkout)
    for entry in found.entries:
        if posixpath.dirname(entry) not in blocked:
            _link(found, entry, checkout)


def link_neighbours(root: Path, checkout: Path) -> None:
    """The same for what stands beside the repository, as in ``--data ../images``."""
    if root == root.parent:
        return
    for name in _names_in(root.parent):
        if name != root.name:
            (checkout.parent / name).symlink_to(root.parent / name)


def _blocked(entries: Iterable[str], checkout: Path) -> set[str]:
    """Folders of the repository in whose place, or above it, the checkout has something else."""
    blocked = set()
    for folder in {posixpath.dirname(entry) for entry in entries}:
        above = [checkout / folder, *(checkout / path for path in PurePath(folder).parents)]
        if any(_exists(path) and not _is_folder(path) for path in above):
            blocked.add(folder)
    return blocked


def _link(found: Untracked, entry: str, checkout: Path) -> None:
    if entry in found.apart or _is_byte_code(entry):
        return
    if entry not in found.mixed and _linked(found, entry, checkout):
        return
    source, link = found.root / entry, checkout / entry
    if _is_folder(source) and (_is_folder(link) or not _exists(link)):
        for name in _names_in(source):
            # the checkout's folder must not become a repository of its own
            if name != ".git":
                _link(found, f"{entry}/{name}", checkout)


def _linked(found: Untracked, entry: str, checkout: Path) -> bool:
    """Whether there was room for a link."""
    source, link = f"{found.root}/{entry}", f"{checkout}/{entry}"
    try:
        os.symlink(source, link)  # noqa: PTH211 - of many thousands paths would take seconds
    except FileNotFoundError:
        # A folder is made only for what it holds: Python could import an empty one.
        Path(link).parent.mkdir(parents=True)
        Path(link).symlink_to(source)
    except FileExistsError:
        return False
    return True


def _names_in(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except PermissionError:
        # What cannot be listed cannot be linked. Nor does a job need it for certain: one that does
        # fails with the path that it lacks.
        return []


def _is_byte_code(path: str) -> bool:
    """Each side compiles its own."""
    return path.endswith(BYTE_CODE) or posixpath.basename(path) == CACHE


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _exists(path: Path) -> bool:
    return path.is_symlink() or path.exists()
