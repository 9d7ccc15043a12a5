"""When processes started: what tells a process from a later one with its number."""

from __future__ import annotations

import os
import time
from pathlib import Path


def boot_s() -> float:
    """Seconds since the machine booted: the clock that process starts are stated in."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_start_s() -> float:
    """When this process started, in ``boot_s`` time."""
    return start_ticks(os.getpid()) / os.sysconf("SC_CLK_TCK")


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot (field 22 of /proc/PID/stat, proc(5)).

    Raises ``ProcessLookupError`` if there is no such process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"no process {pid}") from None
    return int(fields[19])
