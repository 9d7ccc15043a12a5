"""The guard's own folders, and how they are removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

PREFIX = ".sfbench-guard-"
"""Begins the name of every folder that a guard makes outside the state folder."""


def remove_folder(folder: Path) -> None:
    """Remove a guard's folder, whatever rights were set in it; nothing else is ever removed."""
    if not folder.name.startswith(PREFIX) or folder.is_symlink() or not folder.is_dir():
        return
    if folder.stat().st_uid != os.getuid():
        return
    for top, names, _ in os.walk(folder):
        for name in names:
            path = Path(top, name)
            if not path.is_symlink() and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                path.chmod(0o700)
    shutil.rmtree(folder)
