"""CUDA in virtual time: devices, streams, events, memory, capture. No GPU, and nothing waits.

Each stream runs what is launched on it in order, while the host goes on. Events give float32
milliseconds, as the driver does. ``install`` puts it in the place of torch's own API; what the
probe asks of another device than the rank's shows in ``contexts``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # it makes a class of torch.Event: before that is replaced

GIB = 2**30


@dataclass
class Stream:
    """A queue of a device."""

    device: int
    free_at: float = 0.0
    """When all that was launched so far has run."""


@dataclass
class Device:
    """One GPU."""

    index: int
    total: int = 80 * GIB
    others: int = 0
    """Memory that other processes hold."""
    reserved: int = 0
    allocated: int = 0
    peak: int = 0
    clock_mhz: int = 1980
    fraction: float = 1.0
    """Of its memory that this process may take."""
    default: Stream = field(init=False)

    def __post_init__(self) -> None:
        self.default = Stream(self.index)


class OutOfMemory(torch.OutOfMemoryError):
    """As torch raises it."""


class VirtualCuda:
    """A machine with some GPUs, and one process on it. ``kind``: as torch calls them."""

    def __init__(self, devices: int = 8, kind: str = "cuda") -> None:
        self.kind = kind
        self.now = 1000.0
        self.devices = [Device(i) for i in range(devices)]
        self.current = 0
        self.streams = [d.default for d in self.devices]
        """The current one of each device."""
        self.contexts: set[int] = set()
        """Devices that were touched: each takes memory and a second to start."""
        self.capturing = False
        self.waits = 0
        """How often the host waited for a device."""
        self.events = 0
        self.event_cost_s = 0.0

    # -- what a script does ----------------------------------------------------------------------

    def host(self, seconds: float) -> None:
        """The host computes, or waits."""
        self.now += seconds

    def launch(self, seconds: float, device: int | None = None) -> None:
        """Work for a device, on its current stream; the host goes on."""
        index = self.current if device is None else device
        self.contexts.add(index)
        stream = self.streams[index]
        stream.free_at = max(stream.free_at, self.now) + seconds

    def item(self, device: int | None = None) -> None:
        """Wait for a stream, as ``loss.item()`` does."""
        index = self.current if device is None else device
        self.contexts.add(index)
        self.waits += 1
        self.now = max(self.now, self.streams[index].free_at)

    def allocate(self, size: int, device: int | None = None) -> None:
        """Take memory, as the caching allocator does."""
        gpu = self.devices[self.current if device is None else device]
        if gpu.allocated + size > min(gpu.total - gpu.others, gpu.total * gpu.fraction):
            raise OutOfMemory(f"CUDA out of memory. Tried to allocate {size} bytes")
        gpu.allocated += size
        gpu.peak = max(gpu.peak, gpu.allocated)
        gpu.reserved = max(gpu.reserved, gpu.allocated)

    def free(self, size: int, device: int | None = None) -> None:
        """Give memory back to the allocator, which keeps it."""
        self.devices[self.current if device is None else device].allocated -= size

    @contextmanager
    def on_stream(self, stream: Stream) -> Iterator[None]:
        """``with torch.cuda.stream(...)``."""
        before, self.streams[stream.device] = self.streams[stream.device], stream
        current, self.current = self.current, stream.device
        try:
            yield
        finally:
            self.streams[stream.device], self.current = before, current

    # -- torch's API -----------------------------------------------------------------------------

    def index(self, device: Any) -> int:
        """What torch takes for a device, as a number; it becomes a context."""
        if device is None:
            found = self.current
        elif isinstance(device, int):
            found = device
        else:
            index = torch.device(device).index
            found = self.current if index is None else index
        self.contexts.add(found)
        return found

    def set_device(self, device: Any) -> None:
        """Make it the current one."""
        self.current = self.index(device)

    def synchronize(self, device: Any = None) -> None:
        """Wait for all of a device."""
        self.waits += 1
        self.now = max(self.now, self.streams[self.index(device)].free_at)

    def memory_info(self, device: Any = None) -> tuple[int, int]:
        """Free and total, as the driver tells them."""
        gpu = self.devices[self.index(device)]
        return gpu.total - gpu.others - gpu.reserved, gpu.total

    def empty_cache(self) -> None:
        """What nobody uses goes back to the driver."""
        for gpu in self.devices:
            gpu.reserved = gpu.allocated

    def reset_peak(self, device: Any = None) -> None:
        """Forget the peak."""
        gpu = self.devices[self.index(device)]
        gpu.peak = gpu.allocated

    def figure(self, name: str) -> Any:
        """A function that tells one figure of a device."""
        return lambda device=None: getattr(self.devices[self.index(device)], name)

    def properties(self, device: Any = None) -> Any:
        """Name, memory and UUID."""
        index = self.index(device)
        return SimpleNamespace(total_memory=self.devices[index].total, uuid=f"uuid-{index}")

    def install(self, patch: pytest.MonkeyPatch) -> VirtualCuda:
        """Take the place of torch's API, and of the host's clock."""
        accelerator, cuda = torch.accelerator, getattr(torch, self.kind)
        streams = lambda device=None: self.streams[self.index(device)]  # noqa: E731
        for owner in (accelerator, cuda):
            patch.setattr(owner, "synchronize", self.synchronize)
            patch.setattr(owner, "current_stream", streams)
            patch.setattr(owner, "is_available", lambda: True)
        patch.setattr(torch, "Event", lambda device=None, **options: Event(self, device, options))
        patch.setattr(cuda, "Event", lambda **options: Event(self, None, options))
        patch.setattr(cuda, "current_device", lambda: self.current)
        patch.setattr(cuda, "set_device", self.set_device)
        patch.setattr(cuda, "is_initialized", lambda: bool(self.contexts))
        patch.setattr(cuda, "is_current_stream_capturing", lambda: self.capturing)
        patch.setattr(cuda, "mem_get_info", self.memory_info)
        patch.setattr(cuda, "empty_cache", self.empty_cache)
        patch.setattr(cuda, "get_per_process_memory_fraction", self.figure("fraction"))
        patch.setattr(cuda, "memory_reserved", self.figure("reserved"))
        patch.setattr(cuda, "memory_allocated", self.figure("allocated"))
        patch.setattr(cuda, "max_memory_allocated", self.figure("peak"))
        patch.setattr(cuda, "reset_peak_memory_stats", self.reset_peak)
        patch.setattr(cuda, "get_device_properties", self.properties)
        patch.setattr(cuda, "clock_rate", self.figure("clock_mhz"))
        patch.setattr("time.perf_counter", lambda: self.now)
        for hooks in ("device_marks", "loader_hooks", "model_hooks", "updates"):
            patch.setattr(f"sfbench.probe.hooks.{hooks}._now", lambda: self.now)
        return self


class Event:
    """As ``torch.Event`` and ``torch.cuda.Event``."""

    def __init__(self, cuda: VirtualCuda, device: Any, options: dict[str, Any]) -> None:
        self._cuda = cuda
        self.timing = bool(options.get("enable_timing"))
        self.wanted = None if device is None else torch.device(device).index
        self.device: int | None = None
        self.at = 0.0
        self.captured = False

    def record(self, stream: Stream | None = None) -> None:
        """Stand behind what was launched so far. Without a stream: the current device's."""
        cuda = self._cuda
        stream = cuda.streams[cuda.current] if stream is None else stream
        if self.wanted is not None and stream.device != self.wanted:
            raise RuntimeError(f"Event device {self.wanted} does not match stream {stream.device}")
        cuda.contexts.add(stream.device)
        cuda.events += 1
        cuda.now += cuda.event_cost_s
        self.device, self.captured = stream.device, cuda.capturing
        self.at = stream.free_at = max(cuda.now, stream.free_at)

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds in float32."""
        if not (self.timing and other.timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.device != other.device or self.captured or other.captured:
            raise RuntimeError("CUDA error: invalid resource handle")
        if max(self.at, other.at) > self._cuda.now:
            raise RuntimeError("CUDA error: device not ready")
        return float(np.float32((other.at - self.at) * 1e3))
