"""Marks in time that become seconds at block borders.

On CPU a mark is ``time.perf_counter()``. CUDA works asynchronously, so there a mark is a recorded
event, and only ``resolve``, which is called at a block border, waits for the device.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Marks points in the device's time."""

    def mark(self) -> Any:
        """A point in time, without waiting for the device."""
        ...

    def resolve(self, marks: Sequence[Any]) -> list[float]:
        """Seconds since this clock was made, for each mark; waits for the device."""
        ...


class CpuClock:
    """Wall clock of the host."""

    def __init__(self) -> None:
        self._origin = time.perf_counter()

    mark = staticmethod(time.perf_counter)

    def resolve(self, marks: Sequence[float]) -> list[float]:
        """Seconds since this clock was made."""
        return [mark - self._origin for mark in marks]


class CudaClock:
    """CUDA events on the current stream of the current device.

    The first mark is the origin: no device is touched before the script has chosen its own.
    """

    def __init__(self) -> None:
        self._origin: torch.cuda.Event | None = None

    def mark(self) -> torch.cuda.Event:
        """An event recorded on the current stream."""
        event = self._event()
        self._origin = self._origin or event
        return event

    def resolve(self, marks: Sequence[torch.cuda.Event]) -> list[float]:
        """Seconds from the first event of this clock to each mark; synchronises the device."""
        torch.cuda.synchronize()
        origin = self._origin
        return [] if origin is None else [origin.elapsed_time(mark) / 1e3 for mark in marks]

    @staticmethod
    def _event() -> torch.cuda.Event:
        event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def clock_for(device_type: str) -> Clock:
    """The clock that suits a device type, ``cpu`` or ``cuda``."""
    return CudaClock() if device_type == "cuda" else CpuClock()
