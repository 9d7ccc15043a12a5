"""Marks in time that become seconds at block borders.

On CPU a mark is ``time.perf_counter()``. Accelerators work asynchronously, so there a mark is an
event on the stream of the rank's device, and only ``resolve``, which is called at a block border,
waits for it. The device is that of the optimizer that steps: before the first update no device is
known, and none is touched.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from sfbench.probe.device import Accelerator, home_of
from sfbench.probe.stop import Refused


class Clock(Protocol):
    """Marks points in the device's time."""

    accelerator: Accelerator | None
    """The rank's device, once it is known; always None on CPU."""

    def follow(self, parameters: Iterable[torch.Tensor]) -> None:
        """Marks from here on are points in the time of the device that trains these."""
        ...

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
        self.accelerator: Accelerator | None = None

    mark = staticmethod(time.perf_counter)

    def follow(self, parameters: Iterable[torch.Tensor]) -> None:
        """Nothing: there is one host."""

    def resolve(self, marks: Sequence[float]) -> list[float]:
        """Seconds since this clock was made."""
        return [mark - self._origin for mark in marks]


class Mark(NamedTuple):
    """A point in the time of a device, and when the host asked for it."""

    host_s: float
    event: Any
    """None: no device was known yet."""
    device: torch.device | None


class DeviceClock:
    """Events on the stream of the rank's own device."""

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._origin = time.perf_counter()
        self.accelerator: Accelerator | None = None

    def follow(self, parameters: Iterable[torch.Tensor]) -> None:
        """Marks from here on are events on the device that trains these."""
        device = home_of(parameters, self._device_type)
        if self.accelerator is None or self.accelerator.device != device:
            self.accelerator = None if device.type == "cpu" else Accelerator(device)

    def mark(self) -> Mark:
        """An event on the device's current stream; before one is known, the host's time alone.

        Raises:
            Refused: the update goes into a graph, which will be replayed without any hook.
        """
        accelerator = self.accelerator
        if accelerator is None:
            return Mark(time.perf_counter(), None, None)
        if accelerator.capturing():
            raise Refused(
                "device-graph",
                "The optimizer's step is captured into a graph (torch.cuda.graph): its replays "
                "call no hook, so steps cannot be seen. Run the script without the graph around "
                "the optimizer, or capture forward and backward only "
                "(torch.cuda.make_graphed_callables).",
            )
        return Mark(time.perf_counter(), accelerator.event(), accelerator.device)

    def resolve(self, marks: Sequence[Mark]) -> list[float]:
        """Seconds since this clock was made; waits for the device.

        The first mark stands at the host's time. Each other one stands as far after the one before
        as the device tells: milliseconds in float32 lose their resolution with distance, not with
        age. Marks with no device in common are as far apart as the host saw them; that happens only
        before the loop is known.
        """
        if self.accelerator is not None:
            self.accelerator.synchronize()
        seconds = [marks[0].host_s - self._origin] if marks else []
        for before, after in zip(marks, marks[1:]):  # noqa: B905, RUF007
            seconds.append(seconds[-1] + elapsed_s(before, after))
        return seconds


def elapsed_s(before: Mark, after: Mark) -> float:
    """Seconds between two marks that the device has passed."""
    if before.event is None or after.event is None or before.device != after.device:
        return after.host_s - before.host_s
    return float(before.event.elapsed_time(after.event)) / 1e3


def clock_for(device_type: str) -> Clock:
    """The clock that suits a device type: ``cpu``, ``cuda`` or ``xpu``."""
    return CpuClock() if device_type == "cpu" else DeviceClock(device_type)
