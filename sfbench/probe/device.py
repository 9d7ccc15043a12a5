"""The accelerator of a rank: events, memory, clock, by torch's generic API.

CUDA, ROCm (which torch calls ``cuda``) and XPU are one path. Everything is asked of the device that
a rank trains on, never of the current one: a script need not call ``set_device``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from sfbench.probe.replaying.memory import Memory

NO_FIGURE = 0
"""What the driver does not tell."""


class Accelerator:
    """One device that is not the host's processor."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._module: Any = torch.get_device_module(device)
        self.capturing: Callable[[], bool] = getattr(
            self._module, "is_current_stream_capturing", _never
        )
        """Whether what is launched now goes into a graph instead of being run."""

    def event(self) -> Any:
        """An event on the stream that is current on this device."""
        event = torch.Event(self.device, enable_timing=True)
        event.record(torch.accelerator.current_stream(self.device.index))
        return event

    def synchronize(self) -> None:
        """Wait for all that was launched on this device."""
        torch.accelerator.synchronize(self.device)

    def memory(self) -> Memory:
        """How its memory is used. A script may have given its process a part of the device."""
        free, total = self._free_and_total()
        reserved = int(self._figure("memory_reserved"))
        # 0: an old torch, or an allocator that does not tell.
        total = int(total * (self._figure("get_per_process_memory_fraction") or 1.0))
        return Memory(
            total=total,
            free=max(0, min(free, total - reserved)),
            reserved=reserved,
            allocated=int(self._figure("memory_allocated")),
            peak=self.peak_bytes(),
        )

    def _free_and_total(self) -> tuple[int, int]:
        try:
            free, total = self._module.mem_get_info(self.device)
        except RuntimeError:  # not all devices tell (some of Intel's): then none is taken for free
            return NO_FIGURE, self.identity()[0]
        return int(free), int(total)

    def _figure(self, name: str) -> float:
        """``NO_FIGURE`` where a script put an allocator in torch's place that keeps none."""
        ask = getattr(self._module, name, None)
        try:
            return float(ask(self.device) or NO_FIGURE) if ask is not None else NO_FIGURE
        except RuntimeError:  # "does not yet support ..."
            return NO_FIGURE

    def give_back(self) -> None:
        """Let the driver have what the allocator holds and nobody uses."""
        self._module.empty_cache()

    def peak_bytes(self) -> int:
        """Most that was allocated since the last reset."""
        return int(self._figure("max_memory_allocated"))

    def reset_peak(self) -> None:
        """Forget the peak so far."""
        self._figure("reset_peak_memory_stats")

    def identity(self) -> tuple[int, str]:
        """Total memory in bytes and UUID, the latter empty where there is none."""
        properties = self._module.get_device_properties(self.device)
        return int(properties.total_memory), str(getattr(properties, "uuid", ""))

    def clock_hz(self) -> float:
        """The clock just now; ``NO_FIGURE`` where the driver does not tell (it may need a library
        that is not installed, or rights that this process lacks)."""
        rate = getattr(self._module, "clock_rate", None)
        try:
            return 1e6 * rate(self.device) if rate is not None else NO_FIGURE
        except Exception:  # of three vendors' libraries, which share no base: not told
            return NO_FIGURE


def _never() -> bool:
    return False


def parameters_of(optimizers: Iterable[Any]) -> Iterator[torch.Tensor]:
    """All parameters that these optimizers update."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield from group["params"]


def in_use(device_type: str) -> bool:
    """Whether this process has touched a device of a type."""
    module = torch.get_device_module(device_type)
    started = getattr(module, "is_initialized", None)
    return bool(started()) if started is not None else False


def home_of(parameters: Iterable[torch.Tensor], device_type: str) -> torch.device:
    """The device that an optimizer with these parameters trains on.

    Where some lie on the processor (large embeddings), the others tell. Where all do, beside a
    device in use, they are parked there (offloading): the work is done on the current device.
    """
    found = next((p.device for p in parameters if p.device.type != "cpu"), torch.device("cpu"))
    if found.type == "cpu" and device_type != "cpu" and in_use(device_type):
        current = torch.get_device_module(device_type).current_device()
        return torch.device(device_type, current)
    return found


_NO_DEVICE = (
    "No CUDA GPUs are available", "No HIP GPUs are available",
    "Torch not compiled with CUDA enabled", "Found no NVIDIA driver",
    "Attempting to deserialize object on a CUDA device",
    "No XPU devices are available", "Torch not compiled with XPU enabled",
)  # fmt: skip


def asks_for_a_device(error: BaseException) -> bool:
    """Whether torch raised this since there is no GPU, or it is hidden from the script."""
    text = str(error)
    return isinstance(error, AssertionError | RuntimeError) and any(s in text for s in _NO_DEVICE)


def mismatch(found: Sequence[str], device_type: str) -> str | None:
    """Why ranks that train on these types of device cannot be measured as asked; else None."""
    other = next((kind for kind in found if kind != device_type), None)
    if other is None:
        return None
    rank = found.index(other)
    if device_type == "cpu":
        return (
            f"Rank {rank} trains on {other}, but this is a measurement on the CPU: times would be "
            f"those of launching work. Give --device {other}, or make the script train on the CPU."
        )
    return (
        f"Rank {rank} trains on {other}, but this is a measurement on {device_type}: its devices "
        f"would be idle. Give --device {other}, or move the script's model to its device."
    )
