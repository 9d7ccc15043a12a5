"""Which line of the script is running."""

from __future__ import annotations

import dis
import os
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from torch.autograd.function import FunctionCtx

import sfbench

_PACKAGE = str(Path(sfbench.__file__).parent) + os.sep
PROBE = _PACKAGE + "probe" + os.sep
_ONCE = str(Path("sfbench") / "data") + os.sep
_BATCH = str(Path("nn") / "modules" / "_functions.py")
_STEPS_OF_LOOPS = {"FOR_ITER", "SEND", "YIELD_FROM"}
"""Opcodes that ask for the next item and take the end of the iterator for the end of a loop."""


class CallSite:
    """Finds the innermost line of the script, or of a module beside it, on the stack."""

    def __init__(self, root: str) -> None:
        self._folder = root + os.sep
        self._own: dict[CodeType, bool] = {}

    def line(self) -> str:
        """``file.py:12``; empty if no frame belongs to the script."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            line = self.line_of(frame)
            if line:
                return line
            frame = frame.f_back
        return ""

    def line_of(self, frame: FrameType) -> str:
        """The same of one frame; empty if it does not belong to the script."""
        if not self._is_own(frame.f_code):
            return ""
        return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"

    def _is_own(self, code: CodeType) -> bool:
        own = self._own.get(code)
        if own is None:
            path = code.co_filename
            inside = path.startswith(self._folder)
            rest = path[len(self._folder) :] if inside else ""
            own = inside and "site-packages" not in rest and not rest.startswith("sfbench" + os.sep)
            self._own[code] = own
        return own


def caller() -> FrameType:
    """The frame that called a hook: the innermost one outside the probe."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PROBE):
        frame = frame.f_back
    return frame


def guarded() -> bool:
    """Whether ``sfbench.data`` does the work just now: the other ranks wait until it is complete,
    or the files are its own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_PACKAGE) and _ONCE in path:
            return True
        frame = frame.f_back
    return False


def in_function() -> bool:
    """Whether the forward of a custom autograd function runs, other than SyncBatchNorm's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "forward" and code.co_argcount and not code.co_filename.endswith(_BATCH):
            first = frame.f_locals.get(code.co_varnames[0])
            if isinstance(first, FunctionCtx):
                return True
        frame = frame.f_back
    return False


def calls_by_for(frame: Any) -> bool:
    """Whether a Python frame asks for an item by ``for`` or ``yield from``, not by ``next()``.

    enumerate, zip and their like have no frame of their own, so this sees through them.
    """
    code = frame.f_code.co_code
    return dis.opname[code[frame.f_lasti]] in _STEPS_OF_LOOPS
