"""What GPUs do while a launch runs, by a made-up NVML."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sfbench.launch.gpus import Reading, Readings, read, watched
from sfbench.launch.outcome import GpuState


def nvml(bits: int) -> Any:
    """One GPU that tells this."""
    names = (
        "SwPowerCap", "HwPowerBrakeSlowdown", "SwThermalSlowdown", "HwThermalSlowdown",
        "HwSlowdown", "ApplicationsClocksSetting",
    )  # fmt: skip
    reasons = {f"nvmlClocksThrottleReason{name}": 1 << i for i, name in enumerate(names)}
    return SimpleNamespace(
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetUUID=lambda handle: b"GPU-a",
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: bits,
        nvmlDeviceGetClockInfo=lambda handle, clock: 1410,
        nvmlDeviceGetTemperature=lambda handle, sensor: 71,
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=80),
        **reasons,
    )


def reading(clock_hz: float, load: float, *reasons: str) -> Reading:
    return Reading(
        uuid="GPU-a", clock_hz=clock_hz, temperature_c=50 + 10 * load, load_ratio=load,
        reasons=frozenset(reasons),
    )  # fmt: skip


def test_a_look_is_in_si_units_and_names_its_reasons() -> None:
    # GIVEN power capped (bit 0) and slowed down by heat (bit 3)
    found = read(nvml(0b1001), handle=None)
    assert found == Reading(
        uuid="GPU-a", clock_hz=1.41e9, temperature_c=71.0, load_ratio=0.8,
        reasons=frozenset({"power", "heat"}),
    )  # fmt: skip


def test_a_resting_clock_says_nothing() -> None:
    readings = Readings()
    readings.add(reading(0.2e9, 0.0))
    readings.add(reading(1.0e9, 1.0, "heat"))
    readings.add(reading(1.4e9, 0.5))
    assert readings.states() == (
        GpuState(
            uuid="GPU-a", clock_hz=1.2e9, temperature_c=60.0, load_ratio=0.5, throttled=("heat",)
        ),
    )


def test_a_job_on_cpu_looks_at_no_gpu() -> None:
    with watched("cpu") as readings:
        pass
    assert readings.states() == ()
