"""Runs one checkout instead of another, and tells which files were really imported."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from sfbench.schema import CodeRoot, ModuleFile


def enter(code: CodeRoot, launch_dir: str) -> None:
    """Go to the checkout: folder, import path, and byte-code caches of its own."""
    os.chdir(code.cwd)
    sys.path[:] = [_moved(entry, code) for entry in sys.path]
    sys.pycache_prefix = str(Path(launch_dir) / "pycache")


def imported(code: CodeRoot) -> tuple[ModuleFile, ...]:
    """Every module file imported from the checkout, and any from the person's own, by path.

    Installed packages do not count, even where their environment lies inside the checkout.
    """
    found = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and "site-packages" not in file and Path(file).is_file():
            told = _file(Path(file).resolve(), code)
            if told is not None:
                found[told.path] = told
    return tuple(found[path] for path in sorted(found))


def _moved(entry: str, code: CodeRoot) -> str:
    path = Path(entry)
    if entry and path.is_relative_to(code.instead_of) and "site-packages" not in entry:
        return str(Path(code.folder) / path.relative_to(code.instead_of))
    return entry


def _file(path: Path, code: CodeRoot) -> ModuleFile | None:
    folder, own = Path(code.folder).resolve(), Path(code.instead_of).resolve()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if path.is_relative_to(folder):
        return ModuleFile(path=str(path.relative_to(folder)), sha256=digest, foreign=False)
    if path.is_relative_to(own):
        return ModuleFile(path=str(path), sha256=digest, foreign=True)
    return None
