"""GPUs that torch can use here, found without importing torch into this process."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Build = Literal["cuda", "rocm", "xpu"]

_BUILDS: tuple[tuple[Build, str], ...] = (("cuda", "cuda"), ("rocm", "hip"), ("xpu", "xpu"))
_NODES = {
    "cuda": ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version"),
    "rocm": ("/dev/kfd",),
    "xpu": ("/dev/dri/renderD*",),
}
"""What the driver of each makes: without it there is no such GPU."""
_MAKERS: dict[Build, str] = {"cuda": "NVIDIA GPUs", "rocm": "AMD GPUs", "xpu": "Intel GPUs"}
_CARDS, _INTEL = Path("/sys/class/drm"), "0x8086"
_ASK = (
    "import json, torch; a = torch.accelerator; "
    "m = torch.get_device_module(a.current_accelerator()); "
    "print(json.dumps([m.get_device_name(i) for i in range(a.device_count())]))"
)
_ASK_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as NVML tells of it."""

    name: str
    uuid: str
    power_limit_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerators:
    """What was found."""

    names: tuple[str, ...] = ()
    """Of the visible ones, in the order of their numbers."""
    kind: Literal["cuda", "xpu"] = "cuda"
    """What torch calls them; ROCm's are ``cuda`` too."""
    problem: str | None = None
    """Why there are none, although there should be."""
    driver: str | None = None
    power_limits_w: tuple[float, ...] = ()
    note: str | None = None
    """What is not known of them, or which others this torch cannot use."""


def accelerators() -> Accelerators:
    """Look at this machine."""
    build = torch_build()
    if build is None or not _driver(build):
        return Accelerators(note=_unused(build))
    if build == "cuda":
        return _by_nvml()
    return _by_torch(build, f"torch is built for {build}")


def _driver(build: Build) -> str | None:
    """What tells that such a driver is here."""
    return next((node for node in _NODES[build] if any(Path("/").glob(node[1:]))), None)


def _unused(build: Build | None) -> str | None:
    """GPUs that stay idle since torch is built for others; a part of the processor is none."""
    compute: tuple[Build, ...] = ("cuda", "rocm")
    found = next(((kind, node) for kind in compute if (node := _driver(kind))), None)
    if found is None and any(map(_is_intels_card, _CARDS.glob("renderD*/device"))):
        found = "xpu", str(_CARDS)
    if found is None:
        return None
    kind, node = found
    built = "the processor alone" if build is None else _MAKERS[build]
    return (
        f"this machine has a driver of {_MAKERS[kind]} ({node}), but torch is built for {built}: "
        "scripts train on the CPU, and that was measured. Install a build of torch for the GPUs, "
        "or give --device cpu if that is meant"
    )


def _is_intels_card(device: Path) -> bool:
    """Not the graphics inside a processor, which always has this place on the bus."""
    try:
        vendor = (device / "vendor").read_text().strip()
    except OSError:
        return False
    return vendor == _INTEL and not device.resolve().name.endswith(":00:02.0")


def torch_build() -> Build | None:
    """What the installed torch is built for, from its version file; None: the processor alone."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    version = Path(spec.submodule_search_locations[0]) / "version.py"
    text = version.read_text(encoding="utf-8") if version.is_file() else ""
    for build, word in _BUILDS:
        if re.search(rf"^{word}\b.*=\s*['\"]", text, re.MULTILINE):
            return build
    return None


def visible(listed: str | None, gpus: Sequence[Gpu]) -> tuple[int, ...]:
    """Which GPUs ``CUDA_VISIBLE_DEVICES`` leaves, as the driver reads it.

    By number or by the beginning of a UUID, as the first entry is. What is no number, negative, out
    of range, unknown or ambiguous ends the list; an entry that comes twice leaves none.
    """
    if listed is None:
        return tuple(range(len(gpus)))
    by_uuid = listed.startswith(("GPU-", "MIG-"))
    chosen: list[int] = []
    for entry in listed.split(","):
        place = _by_uuid(entry, gpus) if by_uuid else _number(entry)
        if place is None or not 0 <= place < len(gpus):
            break
        if place in chosen:
            return ()
        chosen.append(place)
    return tuple(chosen)


def _number(entry: str) -> int | None:
    """The whole number that an entry starts with, as C reads it."""
    found = re.match(r"\s*([+-]?\d+)", entry)
    return int(found.group(1)) if found else None


def _by_uuid(entry: str, gpus: Sequence[Gpu]) -> int | None:
    matching = [place for place, gpu in enumerate(gpus) if gpu.uuid.startswith(entry)]
    return matching[0] if len(matching) == 1 else None


def _by_nvml() -> Accelerators:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _by_torch("cuda", f"NVML does not start ({error})")
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        gpus = [_gpu(pynvml, handle) for handle in handles]
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError as error:
        return _by_torch("cuda", f"NVML does not tell its devices ({error})")
    finally:
        pynvml.nvmlShutdown()
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None and listed.startswith("MIG-"):
        # Parts of a GPU: NVML counts whole ones.
        return _by_torch("cuda", "CUDA_VISIBLE_DEVICES names MIG devices", driver)
    if _unlike(gpus) and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        # The driver counts the fastest first, NVML by the place on the bus.
        return _by_torch("cuda", "it counts GPUs of several kinds in another order", driver)
    chosen = [gpus[place] for place in visible(listed, gpus)]
    limits = [gpu.power_limit_w for gpu in chosen]
    return Accelerators(
        names=tuple(gpu.name for gpu in chosen),
        driver=driver,
        note=_several_kinds(gpu.name for gpu in chosen),
        power_limits_w=tuple(limit for limit in limits if limit is not None),
    )


def _unlike(gpus: Sequence[Gpu]) -> bool:
    return len({gpu.name for gpu in gpus}) > 1


def _several_kinds(names: Iterable[str]) -> str | None:
    """Devices of several kinds do not scale: the slowest one sets the pace of a step."""
    kinds = Counter(names)
    if len(kinds) < 2:
        return None
    told = ", ".join(f"{count} {name}" for name, count in kinds.items())
    return (
        f"the GPUs are of several kinds ({told}): a step takes as long as it does on the slowest "
        "that takes part. CUDA_VISIBLE_DEVICES chooses GPUs of one kind"
    )


def _gpu(nvml: Any, handle: Any) -> Gpu:
    try:
        limit: float | None = nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3
    except nvml.NVMLError:  # not every GPU has one
        limit = None
    return Gpu(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        power_limit_w=limit,
    )


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


def _by_torch(build: Build, why: str, driver: str | None = None) -> Accelerators:
    """Ask torch itself, in a process of its own: it takes seconds."""
    kind: Literal["cuda", "xpu"] = "xpu" if build == "xpu" else "cuda"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK],
            capture_output=True, text=True, check=False, timeout=_ASK_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Accelerators(kind=kind, problem=f"{why}, and torch does not answer")
    lines = done.stdout.splitlines()
    names = tuple(json.loads(lines[-1])) if done.returncode == 0 and lines else ()
    if names:
        note = (
            "temperature, power limit and throttling of these GPUs are not known: NVML, which "
            f"tells them, knows whole NVIDIA GPUs only, and {why}"
        )
        kinds = _several_kinds(names)
        note = f"{note}; {kinds}" if kinds else note
        return Accelerators(names=names, kind=kind, driver=driver, note=note)
    said = (done.stderr.strip().splitlines() or ["it finds none"])[-1]
    return Accelerators(kind=kind, problem=f"{why}, and torch can use no GPU: {said}")
