"""The product's own schedule over made-up step times: what a sweep would have measured."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from synthetic import launch_plan, launch_record, machine, outcome, sweep_plan

from sfbench.analyze.points import Analysis, analyze
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import LADDER, RUNGS, STEP_COLUMNS, Diagnosis, ProbeOptions, Rung
from sfbench.diagnose.causes import diagnose
from sfbench.probe.pace import DONE, BlockFacts, Command, Pace

OWN_S = 5e-5
"""What an ordinary script does between two steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job whose every step is known."""

    step_s: float = 0.03
    compute: float = 0.8
    """Part of the step that one device needs; communication takes the rest, from two devices on."""
    noise: float = 0.03
    stall: Callable[[int, int], float] = lambda rank, step: 0.0
    """Rank, its own step -> seconds that it stops before that step."""
    after_backward: bool = False
    """It stops after that step's backward instead: others wait in the next one."""
    burst: float = 0.0
    """Part of the steps in which another program takes ``burst_s``."""
    burst_s: float = 0.05


def simulated(job: Job, devices: int, index: int, seed: int, seconds: float) -> MeasuredLaunch:
    """One launch, driven by the real schedule."""
    rng = random.Random(1000 * seed + index)
    options = ProbeOptions(rungs=LADDER, seconds=seconds, seed=seed + index)
    pace = Pace(options, LADDER, devices, queued=0)
    now, counts, rows = 0.0, [0] * devices, []
    command = pace.send(BlockFacts(now_s=0.0, step_s=(), samples=0.0))
    while command.kind != DONE:
        took, waits = [], [0.0] * devices
        for place in range(command.skip + command.steps):
            times = _step(job, devices, RUNGS[command.rung], command, counts, rng)
            if job.after_backward:
                times, waits = _late(job, times, waits, counts, command)
            for rank, (step_s, own_s) in times.items():
                measured = command.block >= 0 and place >= command.skip
                values = {
                    "rank": rank, "step": counts[rank], "block": command.block,
                    "cycle": command.cycle, "rung": command.rung, "turn": command.turn,
                    "measured": measured, "start_s": now, "step_s": step_s, "samples": 8,
                    "between_s": OWN_S if job.after_backward else own_s,
                    "after_backward_s": own_s - OWN_S if job.after_backward else 0.0,
                    "forward_s": 0.3 * job.step_s,
                }  # fmt: skip
                row = dict.fromkeys(STEP_COLUMNS, 0.0) | values
                rows.append(tuple(row[name] for name in STEP_COLUMNS))
                counts[rank] += 1
            now += max(step_s for step_s, _ in times.values())
            if place >= command.skip:
                took.append(times.get(0, next(iter(times.values())))[0])
        command = pace.send(BlockFacts(now_s=now, step_s=took, samples=8.0 * len(took)))
    return MeasuredLaunch(
        plan=launch_plan(index, devices, index),
        outcome=outcome(),
        record=launch_record(devices),
        steps=np.array(rows, dtype=np.float64),
    )


def _step(
    job: Job, devices: int, rung: Rung, command: Command, counts: list[int], rng: random.Random
) -> dict[int, tuple[float, float]]:
    """Each running rank's step and its own time before it."""
    ranks = range(devices) if command.turn < 0 else (command.turn,)
    stalls = {rank: job.stall(rank, counts[rank]) for rank in ranks}
    work = {}
    for rank in ranks:
        late = job.burst_s * rng.random() if rng.random() < job.burst else 0.0
        work[rank] = job.compute * job.step_s * rng.lognormvariate(0.0, job.noise) + late
    if rung in ("train", "cached"):
        sync = (1 - job.compute) * job.step_s if devices > 1 else 0.0
        slowest = max(work[rank] + stalls[rank] for rank in ranks) + sync
        return {rank: (slowest, OWN_S + stalls[rank]) for rank in ranks}
    return {rank: (work[rank] + stalls[rank], OWN_S + stalls[rank]) for rank in ranks}


def _late(
    job: Job,
    times: dict[int, tuple[float, float]],
    waits: list[float],
    counts: list[int],
    command: Command,
) -> tuple[dict[int, tuple[float, float]], list[float]]:
    """Times where ranks stop after the backward, and what each waits for in the next step."""
    stops = {rank: job.stall(rank, counts[rank]) for rank in times}
    together = RUNGS[command.rung] in ("train", "cached")
    longest = max(stops.values())
    late, after = {}, list(waits)
    for rank, (step_s, own_s) in times.items():
        without = step_s - (longest if together else stops[rank])
        late[rank] = (without + stops[rank] + waits[rank], own_s)
        after[rank] = longest - stops[rank] if together else 0.0
    return late, after


def true_step_s(job: Job, devices: int, period: int, seed: int = 0) -> float:
    """Mean step of a long run on the ``train`` rung."""
    rng = random.Random(f"truth {seed}")
    command, counts, total = Command(1, 0, 1), [1] * devices, 0.0
    steps = period * max(200, 4000 // period)
    for _ in range(steps):
        times = _step(job, devices, "train", command, counts, rng)
        total += times[0][0]
        counts = [count + 1 for count in counts]
    return total / steps


def swept(
    job: Job,
    seed: int,
    *,
    launches: int = 3,
    seconds: float = 10.0,
    counts: Sequence[int] = (1, 2),
) -> tuple[Analysis, tuple[Diagnosis, ...]]:
    """A whole sweep, analyzed and diagnosed."""
    plans = [(devices, round_) for round_ in range(launches) for devices in counts]
    made = [
        replace(found, plan=replace(found.plan, round=round_))
        for index, (devices, round_) in enumerate(plans)
        for found in [simulated(job, devices, index, seed, seconds)]
    ]
    frame, host = step_frame(made), machine(8)
    analysis = analyze(sweep_plan(rungs=LADDER), host, made, frame)
    return analysis, diagnose(analysis.points, made, analysis.steps, host)
