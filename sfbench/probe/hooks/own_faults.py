"""Whose fault an exception is: of the script, or of a hook of ours that stands around it.

A stand-in calls what it stands for under the name ``original``; what comes out of that call is the
script's own. Anything else that a hook raises is the tool's, and must not be told as the script's.
"""

from __future__ import annotations

import linecache
import os
import traceback
from pathlib import Path
from types import TracebackType

import sfbench

_PROBE = str(Path(sfbench.__file__).parent / "probe") + os.sep
_LAUNCH = str(Path(sfbench.__file__).parent / "launch") + os.sep
_CALL = "original"


def is_own(error: BaseException) -> bool:
    """Whether a hook has raised it, not what it stands for.

    The innermost line of the probe below the script decides: a call of ``original``, or not.
    """
    inside, line = False, ""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not path.startswith(_PROBE):
            inside = inside or not path.startswith(str(Path(_PROBE).parent))
        elif inside:
            line = linecache.getline(path, trace.tb_lineno)
        trace = trace.tb_next
    return bool(line) and _CALL not in line


def script_traceback(error: BaseException) -> str:
    """The traceback as if the script had run by itself."""
    told = traceback.TracebackException.from_exception(error)
    _leave_out_hooks(told)
    return "".join(told.format())


def _leave_out_hooks(told: traceback.TracebackException) -> None:
    frames = [frame for frame in told.stack if not frame.filename.startswith((_PROBE, _LAUNCH))]
    told.stack = traceback.StackSummary.from_list(frames)
    for other in (told.__cause__, told.__context__):
        if other is not None:
            _leave_out_hooks(other)
