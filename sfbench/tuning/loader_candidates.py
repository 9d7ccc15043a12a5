"""What to try if devices wait for batches. Pure.

A step with w workers takes the longest of: a step on batches from memory; fetching its batches in
one worker, over w; what fetching and training need of cores, over the cores that there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sfbench.common.schema import Diagnosis
from sfbench.common.units import things
from sfbench.protocol.changes import Argument
from sfbench.tuning.job_facts import JobFacts, number
from sfbench.tuning.tried import Candidate, TriedSettings

STARVATION = "data-loader-starvation"
STALL = "periodic-stall"
MOST_WORKERS = 16
CPU_BOUND = 0.5
"""A fetch that spends this part of its time on a core needs cores, not only workers."""
NEARLY_ENOUGH = 0.05
"""A worker more is not asked for if it would be idle but for this part of its time."""
CORES_SPARE = 0.05
"""Part of the cores that is never free."""
_ADDS_WORKERS = ("no-workers", "workers", "unknown", "cores")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeding:
    """Seconds per step and device."""

    memory_s: float
    """Of a step on batches from memory."""
    fetch_s: float
    """Of its batches in one worker."""
    fetch_cpu_s: float
    """The same on a core."""
    training_cpu_s: float
    devices: int
    cores: float

    @property
    def cpu_bound(self) -> bool:
        """Whether a worker needs a core for most of its time."""
        return self.fetch_cpu_s >= CPU_BOUND * self.fetch_s > 0

    @property
    def free_cores(self) -> float:
        """What training at full speed leaves."""
        training = self.devices * self.training_cpu_s / self.memory_s
        return max(0.0, self.cores * (1 - CORES_SPARE) - training)

    @property
    def needed(self) -> int:
        """Workers per device with which nobody waits, cores permitting."""
        return max(1, math.ceil(self.fetch_s / self.memory_s - NEARLY_ENOUGH))

    def step_s(self, workers: int) -> float:
        """Of a step with so many workers per device."""
        busy_s = self.devices * (self.fetch_cpu_s + self.training_cpu_s) / self.cores
        return max(self.memory_s, self.fetch_s / workers, busy_s)


def loader_candidates(facts: JobFacts) -> Iterator[Candidate]:
    """Settings of the training loaders."""
    if facts.loop.loader_workers is None:
        return
    found = facts.of(STARVATION)
    if found is not None:
        yield from _workers(facts, found)
        yield from _queue(facts, found)
    yield from _persistent(facts)
    if facts.on_device and facts.loop.pin_memory is False:
        yield _candidate("pin", (("pin_memory", True),), found, None)


def cores_set_the_limit(facts: JobFacts) -> str:
    """A sentence if loading lacks cores; empty if it does not."""
    found = facts.of(STARVATION)
    if found is None:
        return ""
    feeding = feeding_of(facts, found)
    lacking = feeding.cpu_bound and feeding.free_cores < 1
    if found.evidence.get("limit") != "cores" and not lacking:
        return ""
    wanted = feeding.devices * (feeding.fetch_cpu_s + feeding.training_cpu_s) / feeding.memory_s
    return (
        f"Cores set the limit: loading and training {things(facts.devices, 'device')} without "
        "waiting would "
        f"keep {wanted:.1f} cores busy, and there are {facts.cores}. No number of "
        "workers mends that: lighten the transform, or decode and resize ahead of time."
    )


def feeding_of(facts: JobFacts, found: Diagnosis) -> Feeding:
    """From the diagnosis; if the training process loads by itself, from its own time."""
    per_step = facts.loop.fetches_per_step
    memory_s = number(found, "step_from_memory_s") or facts.step_s
    fetch_s = per_step * number(found, "one_worker_s_per_batch")
    cpu_s = per_step * number(found, "one_worker_cpu_s_per_batch")
    if not fetch_s and facts.loop.loader_workers == 0:
        fetch_s = number(found, "data_wait_s_per_step")
        cpu_s = min(fetch_s, facts.fetch_cpu_s or 0.0)
    training = number(found, "cores_used_by_training")
    return Feeding(
        memory_s=memory_s,
        fetch_s=fetch_s,
        fetch_cpu_s=cpu_s,
        training_cpu_s=training * memory_s / facts.devices,
        devices=facts.devices,
        cores=facts.cores,
    )


def _workers(facts: JobFacts, found: Diagnosis) -> Iterator[Candidate]:
    limit, now = found.evidence.get("limit"), facts.loop.loader_workers or 0
    feeding = feeding_of(facts, found)
    if limit in _ADDS_WORKERS:
        for count in _counts(facts, feeding, now):
            predicted = facts.step_s / feeding.step_s(count) - 1 if feeding.fetch_s else None
            yield _candidate("workers", _with(facts, count), found, predicted)
    fewer = max(1, min(now - 1, facts.cores // facts.devices))
    crowded = now * facts.devices > facts.cores
    if (limit == "interference" or (limit == "cores" and crowded)) and 0 < fewer < now:
        yield _candidate("workers", _with(facts, fewer), found, None)


def _counts(facts: JobFacts, feeding: Feeding, now: int) -> tuple[int, ...]:
    """Workers per device worth a trial: what is needed, and twice that, but above ``now``."""
    wanted = [feeding.needed, 2 * feeding.needed] if feeding.fetch_s else [2 * now or 2]
    if feeding.cpu_bound:
        free = int(feeding.free_cores / feeding.devices)
        wanted = [min(count, free) for count in wanted]
    if facts.streams:
        wanted = [min(count, max(1, now)) for count in wanted]
    wanted = [min(count, MOST_WORKERS) for count in wanted]
    return tuple(dict.fromkeys(count for count in wanted if count > now))


def _with(facts: JobFacts, count: int) -> tuple[Argument, ...]:
    first = (("num_workers", count),)
    return first if facts.loop.loader_workers else (*first, ("persistent_workers", True))


def _queue(facts: JobFacts, found: Diagnosis) -> Iterator[Candidate]:
    if found.evidence.get("limit") not in ("stalls", "transfer") or not facts.loop.loader_workers:
        return
    deeper = 2 * (facts.loop.prefetch_factor or 2)
    memory_s = number(found, "step_from_memory_s")
    best = facts.step_s / memory_s - 1 if memory_s else None
    yield _candidate("prefetch", (("prefetch_factor", deeper),), found, best)


def _persistent(facts: JobFacts) -> Iterator[Candidate]:
    """Workers that start anew at each epoch."""
    if not facts.loop.loader_workers or facts.loop.persistent_workers is not False:
        return
    stall = facts.of(STALL, kind="epoch-start")
    starving = facts.of(STARVATION, limit="stalls")
    lost_s = number(stall, "stall_s_per_step") or number(starving, "seconds_per_step")
    if lost_s:
        predicted = lost_s / max(facts.step_s - lost_s, 1e-9)
        argument = (("persistent_workers", True),)
        yield _candidate("persistent", argument, stall or starving, predicted)


def _candidate(
    family: str, arguments: tuple[Argument, ...], found: Diagnosis | None, predicted: float | None
) -> Candidate:
    return Candidate(
        settings=TriedSettings(loader=arguments),
        family=family,
        because=found.id if found is not None else "",
        predicted=predicted,
    )
