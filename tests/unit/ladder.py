"""Launches whose ladder of rungs is given: what diagnoses are tested on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from synthetic import (
    LOOP,
    launch_plan,
    launch_record,
    machine,
    outcome,
    sweep_plan,
)

from sfbench.analyze.points import analyze
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import (
    LADDER,
    RUNGS,
    STEP_COLUMNS,
    Diagnosis,
    LoopInfo,
    Point,
    RankLoad,
    Rung,
    RungLoad,
)
from sfbench.diagnose.causes import diagnose
from sfbench.launch.outcome import GpuState

CYCLES = 8
STEPS = 4
WOBBLE = 1e-4
"""Ratio by which even and odd cycles differ, so that intervals have some width."""

ByRank = Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds per step of each rank on each rung; what is not given is as ``cached``."""

    cached: ByRank
    train: ByRank | None = None
    unsynced: ByRank | None = None
    solo: ByRank | None = None
    data_wait: ByRank | None = None
    """On ``train``."""
    forward: ByRank | None = None
    """On ``unsynced``; elsewhere 0."""
    forward_synced: ByRank | None = None
    update: ByRank | None = None
    sizes: Mapping[Rung, float] = field(default_factory=dict)
    """Step of half and double batches, at one device."""

    def on(self, rung: Rung) -> ByRank:
        """Step times of a rung."""
        given = {"train": self.train, "unsynced": self.unsynced, "solo": self.solo}.get(rung)
        if given is None and rung == "solo":
            given = self.unsynced
        return self.cached if given is None else given


def step_rows(times: Times, samples: int) -> list[tuple[float, ...]]:
    """The step table of a launch."""
    rows: list[tuple[float, ...]] = []
    step = block = 0
    for cycle in range(CYCLES):
        scale = 1 + WOBBLE * (-1) ** cycle
        for rung in (*LADDER, *times.sizes):
            for _ in range(STEPS):
                for rank in range(len(times.cached)):
                    values = _values(times, rung, rank, scale, samples)
                    row = dict.fromkeys(STEP_COLUMNS, 0.0) | values
                    row |= {"step": step, "block": block, "cycle": cycle, "measured": 1}
                    rows.append(tuple(row[name] for name in STEP_COLUMNS))
                step += 1
            block += 1
    return rows


def _values(times: Times, rung: Rung, rank: int, scale: float, samples: int) -> dict[str, float]:
    step_s = times.sizes[rung] if rung in times.sizes else times.on(rung)[rank]
    count = {"half": samples / 2, "double": samples * 2}.get(rung, samples)
    forward = times.forward if rung == "unsynced" else times.forward_synced
    return {
        "rank": rank,
        "rung": RUNGS.index(rung),
        "turn": rank if rung == "solo" else -1,
        "step_s": step_s * scale,
        "samples": count,
        "data_wait_s": times.data_wait[rank] if times.data_wait and rung == "train" else 0.0,
        "forward_s": forward[rank] if forward else 0.0,
        "update_s": times.update[rank] if times.update else 0.0,
    }


def launched(
    index: int,
    times: Times,
    *,
    samples: int = 8,
    gpus: tuple[GpuState, ...] = (),
    **record: object,
) -> MeasuredLaunch:
    """A launch that measured these times."""
    devices = len(times.cached)
    return MeasuredLaunch(
        plan=launch_plan(index, devices),
        outcome=replace(outcome(), gpus=gpus),
        record=launch_record(devices, **record),
        steps=np.array(step_rows(times, samples), dtype=np.float64),
    )


def loop(**changes: object) -> LoopInfo:
    """A training loop."""
    return replace(LOOP, **changes)  # type: ignore[arg-type]


def load(  # noqa: PLR0913 - one number for each thing a rank tells
    rank: int,
    *,
    fetch_s: float = 0.0,
    fetch_cpu_s: float = 0.0,
    fetch_delay_s: float = 0.0,
    cpu_s: Mapping[Rung, float] | None = None,
    delay_s: Mapping[Rung, float] | None = None,
    clock_hz: Mapping[Rung, float] | None = None,
    wall_s: float = 0.1,
) -> RankLoad:
    """What one rank's host threads did, per batch and per step."""
    return RankLoad(
        rank=rank,
        fetch_batches=100 if fetch_s else 0,
        fetch_s=fetch_s,
        fetch_cpu_s=fetch_cpu_s,
        fetch_delay_s=fetch_delay_s,
        rungs=tuple(
            RungLoad(
                rung=rung,
                steps=10,
                wall_s=10 * wall_s,
                cpu_s=10 * (cpu_s or {}).get(rung, 0.0),
                delay_s=10 * (delay_s or {}).get(rung, 0.0),
                clock_hz=(clock_hz or {}).get(rung, 0.0),
            )
            for rung in LADDER
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """What became of some launches."""

    points: tuple[Point, ...]
    diagnoses: tuple[Diagnosis, ...]

    def only(self, id_: str, devices: int) -> Diagnosis:
        """The one diagnosis of that name at a device count."""
        (found,) = (d for d in self.diagnoses if (d.id, d.devices) == (id_, devices))
        return found


def diagnosed(*launches: MeasuredLaunch, cores: int = 8, quota: float | None = None) -> Diagnosed:
    """Analyze and diagnose launches on a machine of some cores."""
    frame = step_frame(launches)
    host = replace(machine(cores), quota=quota)
    analysis = analyze(sweep_plan(rungs=LADDER, warmup_steps=0), host, launches, frame)
    found = diagnose(analysis.points, launches, analysis.steps, host)
    return Diagnosed(points=analysis.points, diagnoses=found)
