"""What can be known to fail before a single rank is started: told in one message, at once."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil

from sfbench.common.errors import ScriptError, SfbenchError, UsageError
from sfbench.common.units import bytes_
from sfbench.launch import room
from sfbench.plan.sweep_plan import SweepPlan

RANK_BYTES = 64 << 20
"""No rank takes less of its own, whatever the script is: torch stands in it."""
_DISK_BYTES = 16 << 20
"""Records, logs and results of a small sweep."""
_CGROUP = Path("/sys/fs/cgroup")


def check_before(plan: SweepPlan) -> None:
    """Look at the script and at the room on this machine.

    Raises:
        ScriptError: the script cannot be compiled; nothing else is wrong.
        UsageError: its folder cannot be read, or memory or disks have too little room; all that
            was found is told.
    """
    code = tuple(_code(plan.target.script))
    places = [*_folder(plan.target.script.parent), *_memory(plan), *_rooms(plan.output)]
    if not code and not places:
        return
    kind: type[SfbenchError] = UsageError if places else ScriptError
    raise kind("\n".join([*code, *places]))


def _code(script: Path) -> Iterator[str]:
    """Compile as a rank would; nothing is run."""
    try:
        source = script.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the ranks' logs hold them
            compile(source, str(script), "exec", dont_inherit=True)
    except SyntaxError as error:
        text = (error.text or "").strip()
        yield f"{script}:{error.lineno or 1}: {error.msg}{f': {text}' if text else ''}"
    except (ValueError, RecursionError, MemoryError) as error:  # NULs; too deep for the parser
        yield f"{script}: it cannot be compiled: {error or type(error).__name__}"
    except OSError as error:
        yield f"{script}: it cannot be read: {error.strerror or error}"


def _folder(folder: Path) -> Iterator[str]:
    """Its modules are imported from there."""
    if not os.access(folder, os.R_OK | os.X_OK):
        yield f"{folder}: the script's folder cannot be read: modules beside it are not found."


def _memory(plan: SweepPlan) -> Iterator[str]:
    largest = plan.per_node
    free = available_bytes()
    where = " on each node" if plan.nnodes > 1 else ""
    if largest * RANK_BYTES > free:
        yield (
            f"--devices asks for {largest} ranks{where}, each of {bytes_(RANK_BYTES)} at "
            f"least, and {bytes_(free)} of memory are free: use smaller counts."
        )


def available_bytes(cgroup: Path = _CGROUP) -> int:
    """Memory that can still be had here, also by the limit of a container."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return free
    if limit == "max":
        return free
    reclaimable = int(stat.get("inactive_file", 0))  # the kernel gives it back when asked
    return min(free, int(limit) - used + reclaimable)


def _rooms(output: Path) -> Iterator[str]:
    """Places that every launch or the result needs."""
    needs = {str(_standing(output)): _DISK_BYTES, tempfile.gettempdir(): _DISK_BYTES}
    for place, need in {**needs, room.SHARED_MEMORY: room.FULL_BYTES}.items():
        left = room.free_bytes(place)
        if left is not None and left < need:
            yield f"{place} has {bytes_(left)} of room, and {bytes_(need)} are needed: make room."


def _standing(path: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    path = path.absolute()
    return next(each for each in (path, *path.parents) if each.exists())
