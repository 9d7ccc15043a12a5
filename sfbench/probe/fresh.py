"""A rank starts as an interpreter does that torchrun starts: with random numbers of its own.

Ranks are forked from servers that have imported torch. ``random`` and ``tempfile`` see to that by
themselves, ``secrets`` and ``uuid`` ask the system each time, and a device's generator is made in
the rank. The secret of ``hash()`` cannot be drawn again: see ``sfbench.launch.servers``.
"""

from __future__ import annotations

import builtins
import multiprocessing
import os
import random
import tempfile
from multiprocessing import process
from typing import Any

import numpy as np
import torch

_VARIABLES = ("MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""What torch reads when it is imported; the first one is asked first."""


def start_afresh() -> None:
    """Draw the state of all generators anew, and be a main process."""
    random.seed()
    np.random.seed()
    torch.default_generator.seed()
    tempfile.tempdir = None  # TMPDIR may be set by the script
    _be_main()
    # Ranks come from a fork server: its start method is not theirs.
    multiprocessing.set_start_method(None, force=True)


def _be_main() -> None:
    """Scripts ask whether they are the main process, and torchrun's ranks are."""
    own: Any = multiprocessing.current_process()
    own.name, own.authkey = "MainProcess", os.urandom(32)
    own._identity = ()  # names of processes that it starts begin with it
    process._parent_process = None  # type: ignore[attr-defined]


class OwnThreads:
    """Applies the number of threads that a script sets in ``os.environ`` before it imports torch.

    torch reads it when it is imported, which here has happened long before.
    """

    def __init__(self) -> None:
        self._given = _read()
        self._original: Any = None

    def watch(self) -> None:
        """Until torch is imported for the first time, in one of the first lines of a script."""
        self._original = builtins.__import__
        builtins.__import__ = self._around_import

    def forget(self) -> None:
        """Look no more. Safe to call twice."""
        if builtins.__import__ == self._around_import:
            builtins.__import__ = self._original

    def _around_import(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "torch" or name.startswith("torch."):
            self.forget()
            self._apply()
        return self._original(name, *args, **kwargs)

    def _apply(self) -> None:
        changed = [now for now, before in zip(_read(), self._given, strict=True) if now != before]
        wanted = next((int(text) for text in changed if text.isdigit()), 0)
        if wanted > 0:
            torch.set_num_threads(wanted)


def _read() -> tuple[str, ...]:
    return tuple(os.environ.get(name, "").split(",")[0].strip() for name in _VARIABLES)
