"""What the machine offers, read without importing torch."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Devices and cores that a sweep may use."""

    cores: tuple[int, ...]
    """Numbers of the cores that this process may run on."""
    quota: float | None
    """Cores' worth of time that the control group allows, where limited."""
    gpus: tuple[str, ...]
    """Names of the visible CUDA devices that torch can use."""

    @property
    def usable_cores(self) -> int:
        """Whole cores that can be kept busy, at least 1."""
        quota = len(self.cores) if self.quota is None else int(self.quota)
        return max(1, min(len(self.cores), quota))


def this_machine() -> Machine:
    """Look at this machine."""
    return Machine(
        cores=tuple(sorted(os.sched_getaffinity(0))),
        quota=_quota(_CPU_MAX),
        gpus=_gpus() if torch_has_cuda() else (),
    )


def torch_has_cuda() -> bool:
    """Whether the installed torch is a CUDA build, from its version file."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return False
    version = Path(spec.submodule_search_locations[0]) / "version.py"
    text = version.read_text(encoding="utf-8") if version.is_file() else ""
    return re.search(r"^cuda\b.*=\s*['\"]", text, re.MULTILINE) is not None


def _quota(path: Path) -> float | None:
    try:
        limit, period = path.read_text().split()
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) / int(period)


def _gpus() -> tuple[str, ...]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        count = pynvml.nvmlDeviceGetCount()
        names = [
            pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)
        ]
    finally:
        pynvml.nvmlShutdown()
    return _visible([n if isinstance(n, str) else n.decode() for n in names])


def _visible(names: list[str]) -> tuple[str, ...]:
    """CUDA_VISIBLE_DEVICES by number; names of devices stay unknown where it lists UUIDs."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return tuple(names)
    chosen = []
    for part in filter(None, listed.split(",")):
        if part.isdigit():
            if int(part) >= len(names):
                break  # CUDA ignores everything from the first invalid entry on
            chosen.append(names[int(part)])
        else:
            chosen.append(part)
    return tuple(chosen)
