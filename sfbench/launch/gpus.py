"""Clock, temperature, load and throttling of this node's GPUs while a launch runs (NVML)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sfbench.launch.outcome import GpuState

EVERY_S = 0.5
REASONS = {
    "power": ("SwPowerCap", "HwPowerBrakeSlowdown"),
    "heat": ("SwThermalSlowdown", "HwThermalSlowdown"),
    "hardware": ("HwSlowdown",),
    "fixed clocks": ("ApplicationsClocksSetting",),
}
"""Why a clock is held down, by NVML's names for its reasons. Idling is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at one GPU."""

    uuid: str
    clock_hz: float
    temperature_c: float
    load_ratio: float
    """Part of the time in which a kernel ran."""
    reasons: frozenset[str]
    """Keys of ``REASONS``."""


class Readings:
    """All looks during one launch."""

    def __init__(self) -> None:
        self._by_uuid: dict[str, list[Reading]] = {}

    def add(self, reading: Reading) -> None:
        """Keep one."""
        self._by_uuid.setdefault(reading.uuid, []).append(reading)

    def states(self) -> tuple[GpuState, ...]:
        """Means and extremes of each GPU, over the looks at which it worked (all, if at none)."""
        return tuple(_state(uuid, readings) for uuid, readings in self._by_uuid.items())


def _state(uuid: str, readings: list[Reading]) -> GpuState:
    # A clock that rests says nothing: it falls as soon as no kernel runs.
    working = [r for r in readings if r.load_ratio > 0] or readings
    return GpuState(
        uuid=uuid,
        clock_hz=sum(r.clock_hz for r in working) / len(working),
        temperature_c=max(r.temperature_c for r in working),
        load_ratio=sum(r.load_ratio for r in readings) / len(readings),
        throttled=tuple(sorted(frozenset().union(*(r.reasons for r in working)))),
    )


@contextmanager
def watched(device_type: str) -> Iterator[Readings]:
    """Look at all GPUs of this node twice a second; at none if the job uses none."""
    readings = Readings()
    if device_type != "cuda":
        yield readings
        return
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # a CUDA device without NVML (Jetson): nothing is known of it
        yield readings
        return
    try:
        with _looking(lambda: _look(pynvml, readings)):
            yield readings
    finally:
        pynvml.nvmlShutdown()


@contextmanager
def _looking(look: Callable[[], None]) -> Iterator[None]:
    """Call ``look`` each ``EVERY_S`` in a thread."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(EVERY_S):
            look()

    thread = threading.Thread(target=run, name="gpus", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _look(nvml: Any, readings: Readings) -> None:
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            readings.add(read(nvml, nvml.nvmlDeviceGetHandleByIndex(index)))
        except nvml.NVMLError:  # lost, or in MIG mode: it has no clock to tell
            continue


def read(nvml: Any, handle: Any) -> Reading:
    """One look at one GPU through NVML.

    Raises:
        nvml.NVMLError: the device does not tell.
    """
    uuid = nvml.nvmlDeviceGetUUID(handle)
    bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return Reading(
        uuid=uuid if isinstance(uuid, str) else uuid.decode(),
        clock_hz=1e6 * nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        temperature_c=float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        load_ratio=nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        reasons=frozenset(
            name
            for name, parts in REASONS.items()
            if any(bits & getattr(nvml, f"nvmlClocksThrottleReason{part}") for part in parts)
        ),
    )
