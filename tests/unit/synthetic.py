"""Launches made up for tests of what comes after measuring: every step time is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import RUNGS, STEP_COLUMNS, LaunchRecord, LoopInfo, RankInfo, Rung
from sfbench.launch.outcome import LaunchError, LaunchOutcome
from sfbench.plan.machine import Machine
from sfbench.plan.sweep_plan import LaunchPlan, SweepPlan, Target

Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]

LOOP = LoopInfo(
    samples_from="indices",
    fetches_per_step=1.0,
    batch_per_fetch=8.0,
    loader_workers=2,
    prefetch_factor=2,
    persistent_workers=True,
    pin_memory=False,
    optimizer="SGD",
    backend="gloo",
    wrapper="ddp",
    parameters=1000,
    gradient_bytes=4000,
)


def sweep_plan(**changes: object) -> SweepPlan:
    """A plan of one thread per device."""
    plan = SweepPlan(
        target=Target(name="toy", script=Path("/scripts/toy.py"), is_workload=False),
        name="toy",
        output=Path("results"),
    )
    return replace(plan, **changes)  # type: ignore[arg-type]


def machine(cores: int) -> Machine:
    """A machine of some cores without GPUs."""
    return Machine(cores=tuple(range(cores)), quota=None, gpus=())


def launch_plan(index: int, devices: int, round_: int = 0) -> LaunchPlan:
    """One launch."""
    return LaunchPlan(
        index=index, round=round_, devices=devices, cores=None, seconds=10.0, seed=index
    )


def launch_record(devices: int, **changes: object) -> LaunchRecord:
    """The header that goes with a step table."""
    ranks = tuple(
        RankInfo(rank=r, local_rank=r, host="here", device="cpu", pid=100 + r, threads=1)
        for r in range(devices)
    )
    record = LaunchRecord(
        world_size=devices,
        warmup_steps=0,
        ended_early=False,
        stop_reason="seconds",
        ranks=ranks,
        loop=LOOP,
        unavailable={},
        setup_s=1.0,
        warmup_s=2.0,
        measured_s=10.0,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def outcome(status: str = "ok", error: LaunchError | None = None) -> LaunchOutcome:
    """The end of a launch."""
    return LaunchOutcome(
        status=status,  # type: ignore[arg-type]
        record=Path("record.npz") if status == "ok" else None,
        error=error,
        notes=(),
        start_s=100.0,
        wall_s=15.0,
    )


class StepTable:
    """Rows of a launch, block by block, all ranks at once."""

    def __init__(self, devices: int, *, samples: int = 8) -> None:
        self.devices = devices
        self.samples = samples
        self._rows: list[tuple[float, ...]] = []
        self._steps = [0] * devices
        """Each rank counts its own: turns alone put them apart."""
        self._block = 0

    def warmup(self, steps: int, step_s: float = 1.0) -> StepTable:
        """Steps before the first block."""
        for _ in range(steps):
            for rank in range(self.devices):
                self._row(rank=rank, block=-1, cycle=-1, measured=0, step_s=step_s)
        return self

    def block(
        self,
        rung: Rung,
        step_s: Sequence[Sequence[float]] | Sequence[float],
        *,
        cycle: int | None = None,
        other_s: Sequence[float] | None = None,
    ) -> StepTable:
        """A block on a rung that all ranks run; ``step_s`` by step, or by step and rank."""
        for i, times in enumerate(step_s):
            by_rank = times if isinstance(times, Sequence) else [times] * self.devices
            for rank, value in enumerate(by_rank):
                self._row(
                    rank=rank,
                    block=self._block,
                    cycle=self._block if cycle is None else cycle,
                    rung=RUNGS.index(rung),
                    step_s=value,
                    other_s=other_s[i] if other_s is not None and rank == 0 else 0.0,
                )
        self._block += 1
        return self

    def solo(
        self,
        step_s: Sequence[float],
        *,
        cycle: int,
        steps: int = 4,
        turns: Sequence[int] | None = None,
    ) -> StepTable:
        """Turns alone of every rank, or of some; ``step_s`` by rank."""
        for rank in range(self.devices) if turns is None else turns:
            value = step_s[rank]
            for _ in range(steps):
                self._row(
                    rank=rank,
                    block=self._block,
                    cycle=cycle,
                    rung=RUNGS.index("solo"),
                    turn=rank,
                    step_s=value,
                )
            self._block += 1
        return self

    def array(self) -> Table:
        """Columns ``STEP_COLUMNS``."""
        return np.array(self._rows, dtype=np.float64).reshape(-1, len(STEP_COLUMNS))

    def _row(self, *, rank: int, step_s: float, **values: float) -> None:
        row = dict.fromkeys(STEP_COLUMNS, 0.0) | {
            "rank": rank,
            "step": self._steps[rank],
            "turn": -1,
            "measured": 1,
            "step_s": step_s,
            "data_wait_s": step_s / 10,
            "samples": self.samples,
        }
        self._steps[rank] += 1
        self._rows.append(tuple((row | values)[name] for name in STEP_COLUMNS))


def measured(index: int, table: StepTable, *, round_: int = 0, **record: object) -> MeasuredLaunch:
    """A launch that went well."""
    return MeasuredLaunch(
        plan=launch_plan(index, table.devices, round_),
        outcome=outcome(),
        record=launch_record(table.devices, **record),
        steps=table.array(),
    )


def failed(index: int, devices: int, *, round_: int = 0, status: str = "failed") -> MeasuredLaunch:
    """A launch that did not."""
    error = LaunchError(
        kind="signal",
        rank=1,
        message="rank 1 died",
        last_lines=("last line",),
        log="logs/rank1.log",
        script_fault=True,
    )
    return MeasuredLaunch(
        plan=launch_plan(index, devices, round_), outcome=outcome(status, error), record=None
    )


def steady_launch(
    index: int, devices: int, block_step_s: Sequence[float], *, round_: int = 0, steps: int = 10
) -> MeasuredLaunch:
    """A launch of train blocks whose steps all take the block's time."""
    table = StepTable(devices)
    for step_s in block_step_s:
        table.block("train", [step_s] * steps)
    return measured(index, table, round_=round_)
