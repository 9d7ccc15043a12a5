"""What the loaders deliver and what the devices could take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sfbench.analyze.parts import DATA
from sfbench.common.schema import RankLoad
from sfbench.diagnose.case import Case

NEARLY_ENOUGH = 0.05
"""A worker more is not asked for if it would be idle but for this part of its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """One batch in one worker: mean over launches, and over ranks unless one was asked for."""

    fetch_s: float
    """Wall time of dataset, transform and collate."""
    cpu_s: float
    """Time on a core."""
    delay_s: float
    """Ready to run, but no core was free."""

    @property
    def alone_s(self) -> float:
        """Wall time if cores are free."""
        return max(self.fetch_s - self.delay_s, self.cpu_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one device could take if batches were always there."""

    cached_step_s: float
    """A step on batches from memory."""
    batches_per_s: float
    samples_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Starvation:
    """All that is known of a starving loader."""

    case: Case
    rank: int | None
    """The rank that the others wait for; None: all are alike."""
    limit: str
    """See ``sfbench.diagnose.data_loader_starvation``."""
    wanted: Demand
    supplied: Supply | None
    """None if no worker could be watched."""
    wait_s: float
    """Mean per step that the starving ranks waited for the loader."""
    stall_steps: float
    """The smallest part of the steps that holds most of the waiting."""
    cores: float
    """What loading would need on the host so that no device waited."""
    training_cores: float
    """What training uses on the host."""
    at_one: Supply | None
    """At 1 device, if this is another count."""
    affordable_s: float
    """CPU seconds per sample with which loading would fit on the host's free cores."""


def supply(case: Case, rank: int | None) -> Supply | None:
    """From the loads of all ranks, or of one; None if no worker could be watched."""
    return _supply([load for load in case.loads(rank) if load.fetch_batches])


def supply_at_one(case: Case) -> Supply | None:
    """The same at 1 device, if this is another count."""
    loads = [load for record in case.one_records for load in record.loads]
    return _supply([load for load in loads if load.fetch_batches])


def _supply(loads: Sequence[RankLoad]) -> Supply | None:
    batches = sum(load.fetch_batches for load in loads)
    if not batches:
        return None
    return Supply(
        fetch_s=sum(load.fetch_s * load.fetch_batches for load in loads) / batches,
        cpu_s=sum(load.fetch_cpu_s * load.fetch_batches for load in loads) / batches,
        delay_s=sum(load.fetch_delay_s * load.fetch_batches for load in loads) / batches,
    )


def demand(case: Case) -> Demand:
    """From the step time without loading."""
    data, batch = case.share(DATA).value, case.point.batch_per_device
    assert data is not None
    assert batch is not None
    cached_step_s = case.step_s * (1 - data)
    return Demand(
        cached_step_s=cached_step_s,
        batches_per_s=case.loop.fetches_per_step / cached_step_s,
        samples_per_s=batch / cached_step_s,
    )


def workers_needed(supplied: Supply, wanted: Demand) -> int:
    """Per device, on free cores: seconds of fetching that each second of training uses up."""
    return max(1, math.ceil(wanted.batches_per_s * supplied.alone_s - NEARLY_ENOUGH))


def cores_needed(supplied: Supply, wanted: Demand, devices: int) -> float:
    """Cores that loading would keep busy for so many devices that never wait."""
    return devices * wanted.batches_per_s * supplied.cpu_s
