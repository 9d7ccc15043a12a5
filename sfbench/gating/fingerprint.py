"""What two measurements must share to be compared across days."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path

from sfbench.common.plain_text import without_homes
from sfbench.common.schema import Environment, SweepResult
from sfbench.plan.sweep_plan import MODULE


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Machine, software and job."""

    device: str
    """cpu, cuda or xpu."""
    devices: int
    gpus: tuple[str, ...]
    cpu: str
    cores: int
    threads_per_device: int
    pinned: bool
    torch: str
    backend: str | None
    scaling: str
    target: str
    """File or workload name, without its folder."""
    script_args: tuple[str, ...]
    gpu_driver: str | None = None
    gpu_power_limits_w: tuple[float, ...] = ()
    nccl: str | None = None

    @property
    def key(self) -> str:
        """A short name for it."""
        # What is not known of a job on the processor is left out: its name stays what it was.
        known = dataclasses.astuple(self)
        text = repr(known if self.device != "cpu" else known[:-3])
        return f"{self.target}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def fingerprint(
    environment: Environment, *, devices: int, device: str, scaling: str, target: str,
    script_args: tuple[str, ...],
) -> Fingerprint:  # fmt: skip
    """Of a measurement at ``devices`` devices."""
    return Fingerprint(
        device=device,
        devices=devices,
        gpus=environment.gpus if device != "cpu" else (),
        cpu=environment.cpu,
        cores=environment.cores,
        threads_per_device=environment.threads_per_device,
        pinned=environment.pinned,
        torch=environment.torch,
        backend=environment.backend,
        scaling=scaling,
        target=Path(target.removeprefix(MODULE)).name.removesuffix(".py"),
        script_args=tuple(map(without_homes, script_args)),  # as a stored result has them
        gpu_driver=environment.gpu_driver if device != "cpu" else None,
        gpu_power_limits_w=environment.gpu_power_limits_w if device != "cpu" else (),
        nccl=environment.nccl,
    )


def of_result(result: SweepResult, devices: int) -> Fingerprint:
    """Of a stored result."""
    return fingerprint(
        result.environment,
        devices=devices,
        device=result.device_type,
        scaling=result.scaling,
        target=result.target,
        script_args=result.script_args,
    )


def differences(stored: Fingerprint, here: Fingerprint) -> tuple[str, ...]:
    """``torch: 2.12.0 stored, 2.13.0 here``, field by field; empty if they agree."""
    fields = [field.name for field in dataclasses.fields(Fingerprint)]
    return tuple(
        f"{name.replace('_', ' ')}: {_shown(getattr(stored, name))} stored, "
        f"{_shown(getattr(here, name))} here"
        for name in fields
        if getattr(stored, name) != getattr(here, name)
    )


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
