"""Where the tool keeps what it needs while ranks run apart, and whether there is room. Pure.

The copy of weights and optimizer state stays from the first rung without sync to the next one with
it: 12 bytes a parameter with AdamW in float32. All ranks decide alike, from what all of them told.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

DEVICE_MARGIN = 0.03
"""Part of a device's memory that stays free: an allocator does not fill its last gaps."""
HOST_PART = 0.5
"""Of the host's free memory, what all its ranks together may take."""

_WORDS = ("out of memory", "can't allocate memory", "not enough memory")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRoom:
    """What one rank has and needs on one of its devices, in bytes."""

    device: str
    """The same for ranks that share it, and no other one's."""
    needs: int
    total: int
    free: int
    """Beside the job's own peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What one rank has and needs, in bytes."""

    host: str
    devices: tuple[DeviceRoom, ...]
    """As a rule one; a model may lie on several."""
    host_free: int

    @property
    def needs(self) -> int:
        """Wherever the copy goes."""
        return sum(device.needs for device in self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of one device in bytes."""

    total: int
    """What this process may take at most."""
    free: int
    """Of that, not taken from the driver by any process."""
    reserved: int
    """Taken by this process's allocator, in use or not."""
    allocated: int
    peak: int
    """Most that was allocated since the last reset."""

    def beside(self, peak: int) -> int:
        """What stays when the job is at this peak: free, or reserved and never allocated."""
        return self.free + max(0, self.reserved - peak)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Where the copy goes."""

    where: Literal["device", "host", "nowhere"]
    reason: str = ""
    """Why nowhere."""


def place_for_weights(rooms: Sequence[Room]) -> Keeping:
    """Beside the job on its devices; else in the host's memory; else nowhere."""
    found = [(rank, device) for rank, room in enumerate(rooms) for device in room.devices]
    needs: Counter[str] = Counter()
    for _, device in found:
        needs[device.device] += device.needs
    spare = [one.free - DEVICE_MARGIN * one.total - needs[one.device] for _, one in found]
    if min(spare, default=0) >= 0:
        return Keeping(where="device")
    rank, tightest = found[spare.index(min(spare))]
    on_device = (
        f"{_gib(needs[tightest.device])} for a copy of weights and optimizer state, and "
        f"{_gib(tightest.free)} of the device's memory are free beside the job's "
        f"peak on rank {rank}"
    )
    for host in {room.host for room in rooms}:
        here = [room for room in rooms if room.host == host]
        all_need, free = sum(room.needs for room in here), min(room.host_free for room in here)
        if all_need > HOST_PART * free:
            return Keeping(
                where="nowhere",
                reason=f"no memory: they need {on_device}; the host's ranks together would need "
                f"{_gib(all_need)} of {_gib(free)} that are free there",
            )
    return Keeping(where="host")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory of a device or of the host was lacking, page-locked memory included."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _WORDS)


def room_for_double(memory: Memory, peak: int) -> str | None:
    """Why twice the batch would not fit if the batch itself takes ``peak``; None: it would.

    What a step takes above what stays between two steps goes with its batch.
    """
    more, free = max(0, peak - memory.allocated), memory.beside(peak)
    if more + DEVICE_MARGIN * memory.total <= free:
        return None
    return (
        f"no memory: a batch twice as large needs {_gib(more)} more, and {_gib(free)} of the "
        "device's memory are free beside the job's peak"
    )


def host_free_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """What the host, and this process's control group, have left; 0 if neither tells."""
    free = [n for n in (_available(meminfo), _left_in(cgroup)) if n is not None]
    return min(free, default=0)


def ranks_on_host() -> int:
    """As torchrun says."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _available(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable:")), None)


def _left_in(cgroup: Path) -> int | None:
    """Version 2; the mounted root is the container's own."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return max(0, int(limit) - used) if limit.isdigit() else None


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
