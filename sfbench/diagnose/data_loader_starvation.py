"""data-loader-starvation: the devices wait for batches.

Rule: the step takes longer on the real loader than on batches kept in memory (share ``data``).
What limits loading follows from what fetching costs inside the workers, measured there:

* ``own-batches``: there is no DataLoader, the script makes its batches by itself.
* ``no-workers``: the training process fetches by itself, and waits while it does. If the step is
  longer on the real loader but nobody waits for it, something else is, and nothing is said.
* ``serialised``: one batch takes longer than at 1 device, without using or waiting for a core: the
  readers take turns at something that they share.
* ``cores``: all devices together need more cores for loading and training than the host has.
* ``interference``: the devices hardly wait, but their steps take longer while workers run beside
  them.
* ``workers``: one worker's time per batch, times the batches that a device takes, exceeds the
  workers that run.
* ``stalls``: the workers are fast enough, but few steps hold nearly all of the waiting; without
  persistent workers that is the start of each epoch.
* ``transfer``: the workers are fast enough and the waiting is spread: moving batches between
  processes is what takes the time.
* ``unknown``: the workers could not be watched.

Disproved if the step on batches from memory is no faster, or if twice the workers (with cores
free) leave ``data_wait_s_per_step`` as it is: then the source behind the dataset is slow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfbench.analyze.intervals import Array, grouped_spread
from sfbench.analyze.parts import DATA, Part
from sfbench.analyze.phases import phases, steady_rows, waits_per_cycle
from sfbench.common.schema import Diagnosis
from sfbench.diagnose.case import Case
from sfbench.diagnose.data_advice import advice
from sfbench.diagnose.numbers import Evidence, common, per_sample, rounded
from sfbench.diagnose.recoverable import regain
from sfbench.diagnose.severity import Judgement
from sfbench.diagnose.supply import (
    Demand,
    Starvation,
    Supply,
    cores_needed,
    demand,
    supply,
    supply_at_one,
    workers_needed,
)

ID = "data-loader-starvation"
ONE_RANK = 0.5
"""A rank is the cause if it waits longer than the others by this part of the data share."""
STALL_STEPS = 0.25
"""Stalls: at most this part of the steps ..."""
STALL_WAIT = 0.8
"""... holds at least this part of the waiting."""
CPU_BOUND = 0.5
"""A fetch that spends this part of its time on a core needs cores, not only workers."""
WAITS = 0.5
"""If waiting makes up less than this part of the data share, workers are in the way."""
IN_TURN = 0.5
"""A batch takes longer by this part than at 1 device, and so much of that is spent off a core."""
WAITED = 0.1
"""A worker waits for a core if it spends this part of a fetch ready to run without one."""
CORES_SPARE = 0.05
"""Part of the host's cores that is never free."""
DISPROOF = (
    "not the loader if twice the workers, with cores free, leave data_wait_s_per_step as it is"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signs:
    """What tells the limits apart."""

    cores_lack: bool
    """Loading needs more cores than training leaves."""
    waits: bool
    """Waiting for batches is what makes the step longer."""
    stalls: bool
    """Few steps hold most of the waiting."""
    in_turn: bool = False
    """A batch takes longer than at 1 device although cores are free."""


def diagnose_data_loader(case: Case, part: Part, judged: Judgement) -> Diagnosis | None:
    """Judge the ``data`` share; applies at 1 device as well."""
    found = _look(case)
    if found.limit == "nobody-waits":
        return None
    return Diagnosis(
        id=ID,
        devices=case.devices,
        severity=judged.severity,
        rank=found.rank,
        regain=regain(case, part),
        evidence={**common(case, part, judged), **_evidence(found), "disproof": DISPROOF},
        advice=advice(found),
    )


def _look(case: Case) -> Starvation:
    rank = _starving_rank(case)
    wanted, supplied = demand(case), supply(case, rank)
    training = case.core_use("cached")
    training_cores = case.devices_per_host * training.cpu_s / training.wall_s if training else 0.0
    loading = case.devices_per_host if rank is None else 1
    cores = cores_needed(supplied, wanted, loading) if supplied else 0.0
    counted = 0.0 if _may_only_spin(case, supplied) else training_cores
    free = max(0.0, case.machine.usable_cores * (1 - CORES_SPARE) - counted)
    stall_steps, wait_s = _stall_steps(case, rank), _wait_s(case, rank)
    lost_s = case.seconds(DATA)
    signs = _Signs(
        cores_lack=cores > free,
        waits=lost_s is None or wait_s >= WAITS * lost_s,
        stalls=stall_steps <= STALL_STEPS,
        in_turn=_in_turn(supplied, supply_at_one(case)),
    )
    return Starvation(
        case=case,
        rank=rank,
        limit=_limit(case, wanted, supplied, signs),
        wanted=wanted,
        supplied=supplied,
        wait_s=wait_s,
        stall_steps=stall_steps,
        cores=cores,
        training_cores=training_cores,
        at_one=supply_at_one(case),
        affordable_s=free / (loading * wanted.samples_per_s),
    )


def _may_only_spin(case: Case, supplied: Supply | None) -> bool:
    """A thread that waits for a device keeps a core busy: that tells of a lack of cores only if
    the workers had to wait for one."""
    if not case.on_device:
        return False
    return supplied is None or supplied.delay_s < WAITED * supplied.fetch_s


def _limit(case: Case, wanted: Demand, supplied: Supply | None, signs: _Signs) -> str:
    workers = case.loop.loader_workers
    if signs.in_turn and signs.waits:
        return "serialised"
    if not workers or supplied is None:
        return _own_limit(workers, signs)
    if signs.cores_lack and supplied.cpu_s >= CPU_BOUND * supplied.alone_s:
        return "cores"
    if signs.waits and workers_needed(supplied, wanted) > workers:
        return "workers"
    if signs.waits:
        return "stalls" if signs.stalls else "transfer"
    return "interference"


def _in_turn(here: Supply | None, one: Supply | None) -> bool:
    """Whether readers of several devices wait for each other, off any core."""
    if here is None or one is None:
        return False
    longer_s = here.alone_s - one.alone_s
    idle_s = (here.alone_s - here.cpu_s) - (one.alone_s - one.cpu_s)
    return longer_s > IN_TURN * one.alone_s and idle_s > IN_TURN * longer_s


def _own_limit(workers: int | None, signs: _Signs) -> str:
    """If the process that trains makes its batches: what that takes, it waits."""
    if workers:
        return "unknown"
    if workers is None:
        return "own-batches"
    return "no-workers" if signs.waits else "nobody-waits"


def _starving_rank(case: Case) -> int | None:
    """The rank whose loader the others wait for, if one is alone with it beyond noise."""
    data_s = case.seconds(DATA)
    if case.devices == 1 or data_s is None:
        return None
    waits = waits_per_cycle(case.steps)
    waits = waits[np.isfinite(waits).all(axis=1)]
    if len(waits) < 2:
        return None
    rank = int(waits.mean(axis=0).argmax())
    excess: Array = waits[:, rank] - np.delete(waits, rank, axis=1).max(axis=1)
    spread = grouped_spread([excess])
    beyond_noise = spread is not None and excess.mean() > spread.half_width
    return rank if beyond_noise and excess.mean() >= ONE_RANK * data_s else None


def _wait_s(case: Case, rank: int | None) -> float:
    waits = phases(case.steps, "train").data_wait_s
    return float(np.nanmean(waits) if rank is None else waits[rank])


def _stall_steps(case: Case, rank: int | None) -> float:
    """The smallest part of the steps that holds ``STALL_WAIT`` of all waiting."""
    rows = steady_rows(case.steps, "train")
    if rank is not None:
        rows = rows[(rows["rank"] == rank).to_numpy()]
    waits: Array = np.sort(rows["data_wait_s"].to_numpy(dtype=np.float64))[::-1]
    total = float(waits.sum())
    if total <= 0:
        return 1.0
    return float(np.searchsorted(np.cumsum(waits), STALL_WAIT * total) + 1) / len(waits)


def _evidence(found: Starvation) -> Evidence:
    loop = found.case.loop
    evidence: Evidence = {
        "limit": found.limit,
        "data_wait_s_per_step": rounded(found.wait_s),
        "step_from_memory_s": rounded(found.wanted.cached_step_s),
        "device_could_take_samples_per_s": rounded(found.wanted.samples_per_s),
        "workers_per_device": loop.loader_workers,
        "prefetch_factor": loop.prefetch_factor,
        "persistent_workers": loop.persistent_workers,
        "pin_memory": loop.pin_memory,
        "devices_on_host": found.case.devices_per_host,
        "cores_on_host": found.case.machine.usable_cores,
        "cores_used_by_training": rounded(found.training_cores),
        "steps_with_most_of_the_wait_share": rounded(found.stall_steps),
    }
    if found.supplied is not None:
        one = found.supplied
        evidence |= {
            "one_worker_s_per_batch": rounded(one.fetch_s),
            "one_worker_s_per_batch_at_1_device": (
                rounded(found.at_one.fetch_s) if found.at_one else None
            ),
            "one_worker_s_per_sample": rounded(per_sample(found.case, one.fetch_s)),
            "one_worker_cpu_s_per_batch": rounded(one.cpu_s),
            "one_worker_without_core_s_per_batch": rounded(one.delay_s),
            "workers_needed_per_device": workers_needed(one, found.wanted),
            "cores_needed_for_loading": rounded(found.cores),
        }
    return evidence
