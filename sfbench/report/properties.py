"""Names and values that stand side by side in the report."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sfbench.common import units
from sfbench.common.schema import SweepResult

Value = float | int | str | bool | None

# The unit is in the name: the first pattern found in it says how to write the number.
_BY_NAME: tuple[tuple[re.Pattern[str], Callable[[float], str]], ...] = (
    (re.compile(r"bytes_per_s(?![a-z])"), lambda value: f"{units.bytes_(value)}/s"),
    (re.compile(r"per_s(?![a-z])"), lambda value: f"{units.rate(value)} per s"),
    (re.compile(r"bytes"), units.bytes_),
    (re.compile(r"(^|_)(s|seconds)(_per_[a-z]+)?$"), units.seconds),
    (re.compile(r"share|ratio|efficiency"), units.percent),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A name and what stands beside it."""

    name: str
    text: str


def evidence_facts(evidence: Mapping[str, Value]) -> tuple[Fact, ...]:
    """A diagnosis' evidence as text, by the unit in each name."""
    return tuple(
        Fact(name=name.replace("_", " "), text=fact_text(name, value))
        for name, value in evidence.items()
    )


def sweep_facts(result: SweepResult) -> tuple[Fact, ...]:
    """The machine, the software and the loop that were measured."""
    environment = result.environment
    facts = {
        "script": result.target,
        "started": environment.started_at,
        "took": units.duration(result.duration_s),
        "host": environment.host,
        "processor": f"{environment.cpu}, {environment.cores} cores",
        "memory": units.bytes_(environment.memory_bytes),
        "GPUs": ", ".join(environment.gpus) or "none",
        "threads per device": f"{environment.threads_per_device}"
        f"{', pinned' if environment.pinned else ''}",
        "backend": environment.backend or units.MISSING,
        "platform": environment.platform,
        "torch": environment.torch,
        "Python": environment.python,
        "sfbench": environment.sfbench,
        "git commit": environment.git_commit or units.MISSING,
        "script SHA-256": environment.script_sha256,
        **_schedule_facts(result),
    } | _loop_facts(result)
    return tuple(Fact(name=name, text=text) for name, text in facts.items())


def _schedule_facts(result: SweepResult) -> dict[str, str]:
    """What divided the time, and from which seeds; results of older versions do not tell."""
    schedule = result.schedule
    if schedule is None:
        return {}
    counts = ", ".join(f"{len(p.launches)} of {p.devices}" for p in result.points)
    rounds = "as many as they needed" if schedule.rounds is None else f"{schedule.rounds} asked for"
    warmup = "found" if schedule.warmup_steps is None else f"{schedule.warmup_steps} steps"
    return {
        "launches, of devices": f"{counts} ({rounds})",
        "time to measure": f"{units.duration(schedule.seconds)} per count, "
        f"to {units.percent(schedule.precision)}",
        "warmup": warmup,
        "rungs": ", ".join(schedule.rungs),
        "seeds of the order": _span(schedule.seeds),
    }


def _span(seeds: tuple[int, ...]) -> str:
    if seeds == tuple(range(seeds[0], seeds[0] + len(seeds))) and len(seeds) > 1:
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _loop_facts(result: SweepResult) -> dict[str, str]:
    loop = next((p.loop for p in result.points if p.loop is not None), None)
    if loop is None:
        return {}
    workers = "no DataLoader" if loop.loader_workers is None else str(loop.loader_workers)
    return {
        "loader workers per device": workers,
        "parameters": units.count(loop.parameters),
        "gradients": units.bytes_(loop.gradient_bytes),
        "optimizer": loop.optimizer,
        "data type": loop.dtype,
    }


def fact_text(name: str, value: Value) -> str:
    """A number as text, by the unit in its name."""
    if value is None:
        return units.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    write = next((write for pattern, write in _BY_NAME if pattern.search(name)), units.count)
    return write(value)
