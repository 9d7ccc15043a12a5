"""Runs one checkout instead of another, and tells which files were really imported."""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from sfbench.common.schema import CodeRoot, ModuleFile

TOOL = __name__.split(".", maxsplit=1)[0]
"""This package measures; it is no part of what is compared."""
INSTALLED = "site-packages"
_PYTHON = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
"""An environment may lie in the repository, with a standard library of its own."""


def enter(code: CodeRoot) -> None:
    """Go to the checkout: folder and import path, also of processes started from here."""
    os.chdir(code.cwd)
    sys.path[:] = [_moved(entry, code) for entry in sys.path]
    if "PYTHONPATH" in os.environ:
        entries = os.environ["PYTHONPATH"].split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(_moved(entry, code) for entry in entries)


def imported(code: CodeRoot) -> tuple[ModuleFile, ...]:
    """Every module file imported from the checkout, and any from the person's own, by path.

    Python itself and installed packages do not count, even where their environment lies inside the
    checkout. A file
    that git does not track is linked into the checkout: it counts as imported from there.
    """
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or INSTALLED in file or name.split(".")[0] == TOOL:
            continue
        if file.startswith(_PYTHON):
            continue
        told = _file(Path(os.path.normpath(file)), code)
        if told is not None:
            found[told.path] = told
    return tuple(found[path] for path in sorted(found))


def together(of_ranks: Iterable[Sequence[ModuleFile]]) -> tuple[ModuleFile, ...]:
    """What any rank imported, by path. Files that differ between ranks are all in it."""
    found = {module for modules in of_ranks for module in modules}
    return tuple(sorted(found, key=lambda module: (module.path, module.sha256)))


def _moved(entry: str, code: CodeRoot) -> str:
    # By its name, and else by what it leads to: it may be named through a link to the repository.
    for path in (Path(entry), Path(os.path.realpath(entry))):
        if entry and path.is_relative_to(code.instead_of) and INSTALLED not in entry:
            return str(Path(code.folder) / path.relative_to(code.instead_of))
    return entry


def _file(path: Path, code: CodeRoot) -> ModuleFile | None:
    if not path.is_file():
        return None
    if path.is_relative_to(code.folder):
        return ModuleFile(
            path=str(path.relative_to(code.folder)), sha256=_digest(path), foreign=False
        )
    if path.resolve().is_relative_to(code.instead_of):
        return ModuleFile(path=str(path.resolve()), sha256=_digest(path), foreign=True)
    return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
