"""Folders in which programs keep what they can make again: downloads and compiled code.

Nobody's results lie there. So what a script puts into one may serve the later launches of the same
command, and goes with the command.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sfbench.guard.mounts import is_below

_GIVEN = (
    "XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH", "NUMBA_CACHE_DIR",
)  # fmt: skip
_IN_HOME = (".cache", ".triton", ".nv")


def cache_folders(environment: Mapping[str, str], near: Sequence[str]) -> tuple[str, ...]:
    """Absolute paths without links, none below another; they need not be there yet.

    One that holds the script or the current folder (``near``) is left out: results may lie there.
    """
    paths = [environment[name] for name in _GIVEN if environment.get(name)]
    with suppress(RuntimeError):  # no home
        paths += [str(Path.home() / name) for name in _IN_HOME]
    with suppress(OSError, KeyError):  # a user without a name
        paths.append(f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}")
    found: list[str] = []
    for path in sorted({os.path.realpath(path) for path in paths if path.startswith("/")}):
        holds = any(is_below(os.path.realpath(other), path) for other in near)
        if path != "/" and not holds and not any(is_below(path, other) for other in found):
            found.append(path)
    return tuple(found)
