"""What a launch reports back. Pure values."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

NODE_LOST = "node"
"""Kind of the error of a launch that lacks a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a launch is, from the heartbeat of local rank 0."""

    phase: str
    """One of ``sfbench.common.schema.PHASES``."""
    steps: int
    samples_per_s: float
    half_width: float
    """Relative half-width of the 95 % interval so far; nan if unknown."""
    measured_s: float
    budget_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchError:
    """Why a launch gave nothing."""

    kind: str
    """A RankFailure kind, or signal | timeout | interrupted | launcher."""
    rank: int | None
    message: str
    """Device count, rank, signal or exception, what to try: one paragraph."""
    last_lines: tuple[str, ...]
    """The end of that rank's log."""
    log: str | None
    """Path of that log, relative to the folder given as log_dir's parent."""
    script_fault: bool


def failure_text(error: LaunchError) -> str:
    """A failure as nodes tell it each other."""
    return json.dumps(asdict(error))


def failure_of(text: bytes | str) -> LaunchError:
    """The same back."""
    values = json.loads(text)
    return LaunchError(**{**values, "last_lines": tuple(values["last_lines"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """A GPU of this node while a launch ran."""

    uuid: str
    clock_hz: float
    """Mean over the time in which it worked."""
    temperature_c: float
    """Highest."""
    load_ratio: float
    """Part of the time in which a kernel ran."""
    throttled: tuple[str, ...]
    """What held the clock down: power | heat | hardware | fixed clocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """End of a launch. ``record`` is set exactly if status is ok."""

    status: Literal["ok", "failed", "timeout", "interrupted"]
    record: Path | None
    """``record.npz`` in the launch folder."""
    error: LaunchError | None
    notes: tuple[str, ...]
    start_s: float
    """time.monotonic() when the launch was asked for."""
    wall_s: float
    gpus: tuple[GpuState, ...] = ()
    """Empty if the job uses none, or NVML does not tell."""


OnProgress = Callable[[Progress], None]
