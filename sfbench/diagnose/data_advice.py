"""What to do about a starving loader, with the numbers in it."""

from __future__ import annotations

from collections.abc import Callable

from sfbench.analyze.parts import DATA
from sfbench.common import units
from sfbench.common.units import things
from sfbench.diagnose.numbers import per_sample
from sfbench.diagnose.severity import CONTRIBUTOR
from sfbench.diagnose.supply import Starvation, workers_needed

Lines = tuple[str, ...]
MOSTLY_WAITS = 0.5
"""A batch that spends less than this part of its time on a core waits for something else."""


def advice(found: Starvation) -> Lines:
    """First what removes the limit, then what else is worth knowing."""
    return (
        *_BY_LIMIT[found.limit](found),
        *_one_rank(found),
        *_scales_alike(found),
        *_host_side(found),
    )


def _own_batches(found: Starvation) -> Lines:
    return (
        f"The script makes its batches in the training process, {units.seconds(found.wait_s)} per "
        "step: make the next batch in a thread while the device works, or use a DataLoader with "
        "workers.",
    )


def _no_workers(found: Starvation) -> Lines:
    needed = workers_needed(found.supplied, found.wanted) if found.supplied else 2
    return (
        f"The training process loads by itself (num_workers=0). Set num_workers={needed} and "
        "persistent_workers=True.",
    )


def _workers(found: Starvation) -> Lines:
    assert found.supplied is not None
    needed = workers_needed(found.supplied, found.wanted)
    sample_s = per_sample(found.case, found.supplied.fetch_s)
    return (
        f"Set num_workers={needed} (now {found.case.loop.loader_workers}): one worker takes "
        f"{units.seconds(sample_s)} per sample, and a device could take "
        f"{units.rate(found.wanted.samples_per_s)} samples/s.",
        *_off_cores(found),
    )


def _off_cores(found: Starvation) -> Lines:
    """Workers that wait for something else than a core may all wait for the same thing."""
    made = found.supplied
    if made is None or made.cpu_s >= MOSTLY_WAITS * made.alone_s:
        return ()
    return (
        f"A batch spends {units.seconds(made.alone_s - made.cpu_s)} of its "
        f"{units.seconds(made.fetch_s)} off any core: if the readers take turns at a lock, a "
        "connection or a disk, more workers do not help. Time one worker by itself to tell.",
    )


def _serialised(found: Starvation) -> Lines:
    assert found.supplied is not None
    assert found.at_one is not None
    return (
        f"A shared resource serialises the readers: a batch takes "
        f"{units.seconds(found.supplied.fetch_s)} to make here and "
        f"{units.seconds(found.at_one.fetch_s)} at 1 device, though no more of a core. Look for a "
        "lock (HDF5 and SQLite files have one), a file handle or a connection that all share, or a "
        "disk at its limit; give each device a copy or a shard of its own.",
        "More workers do not help: they take turns at the same thing.",
    )


def _cores(found: Starvation) -> Lines:
    assert found.supplied is not None
    needed = workers_needed(found.supplied, found.wanted)
    devices, running = found.case.devices_per_host, found.case.loop.loader_workers
    cpu_s = per_sample(found.case, found.supplied.cpu_s)
    return (
        f"Decode or resize the data ahead of time, or lighten the transform to "
        f"{units.seconds(found.affordable_s)} of a core per sample (now {units.seconds(cpu_s)}).",
        f"More workers alone do not do it: {things(needed, 'worker')} per device would be needed "
        f"({running} run), which keep {found.cores:.1f} cores busy; the host has "
        f"{things(found.case.machine.usable_cores, 'core')} for {things(devices, 'device')}, and "
        f"training uses {found.training_cores:.1f} of them.",
    )


def _interference(found: Starvation) -> Lines:
    lost_s = found.case.seconds(DATA)
    waited = (
        f"The devices wait only {units.seconds(found.wait_s)} of the {units.seconds(lost_s)} that "
        "loading costs"
    )
    made = found.supplied
    if made is not None and made.cpu_s < MOSTLY_WAITS * made.alone_s:
        return (
            f"{waited}, and a batch keeps a core busy for only {units.seconds(made.cpu_s)}: what "
            "makes the steps longer beside the real loader is not known. Compare a run with other "
            "num_workers before anything is changed.",
            *_off_cores(found),
        )
    return (
        f"{waited}: workers take cores, caches or memory bandwidth from training. Lighten the "
        "transform, keep workers off the ranks' cores (taskset in worker_init_fn), or load with "
        "fewer of them.",
    )


def _stalls(found: Starvation) -> Lines:
    where = f"{units.percent(found.stall_steps)} of the steps hold most of the waiting"
    if found.case.loop.persistent_workers is False:
        return (
            f"Set persistent_workers=True: {where}, and the workers start anew at each epoch.",
            "If the waiting stays, some samples are slow: raise prefetch_factor.",
        )
    deeper = 2 * (found.case.loop.prefetch_factor or 2)
    return (
        f"Set prefetch_factor={deeper} (twice as many batches in waiting): {where}, though the "
        "workers are fast enough on average. Look for slow samples or a slow start of the epoch.",
    )


def _transfer(found: Starvation) -> Lines:
    assert found.supplied is not None
    return (
        f"Moving batches between processes is the cost, not making them: one worker takes "
        f"{units.seconds(found.supplied.fetch_s)} per batch, and {found.case.loop.loader_workers} "
        f"of them serve a step of {units.seconds(found.wanted.cached_step_s)}. Return tensors, not "
        "lists or strings; make samples smaller (uint8, converted on the device).",
    )


def _unknown(found: Starvation) -> Lines:
    twice = 2 * (found.case.loop.loader_workers or 1)
    return (
        f"Try num_workers={twice}: a device could take {units.rate(found.wanted.samples_per_s)} "
        "samples/s. (What one worker delivers could not be watched: they do not start by fork.)",
    )


_BY_LIMIT: dict[str, Callable[[Starvation], Lines]] = {
    "own-batches": _own_batches,
    "no-workers": _no_workers,
    "serialised": _serialised,
    "workers": _workers,
    "cores": _cores,
    "interference": _interference,
    "stalls": _stalls,
    "transfer": _transfer,
    "unknown": _unknown,
}


def _one_rank(found: Starvation) -> Lines:
    if found.rank is None:
        return ()
    info = found.case.infos[found.rank]
    return (
        f"Only rank {found.rank} ({info.host}, {info.device}) waits for its loader, and the others "
        "for it: compare its storage, its part of the data and its cores with theirs.",
    )


def _scales_alike(found: Starvation) -> Lines:
    case = found.case
    if case.devices == 1:
        return (
            "One device waits already. More devices that wait alike scale well on paper: "
            "efficiency does not show this loss.",
        )
    there = case.share_at_one(DATA)
    if there is None or there.value is None or there.value < CONTRIBUTOR:
        return ()
    return (
        f"At 1 device loading takes {units.percent(there.value)} of the step too: that much is no "
        "loss of scaling, and a faster loader speeds up every device count.",
    )


def _host_side(found: Starvation) -> Lines:
    loop, cores = found.case.loop, found.case.machine.usable_cores
    words = []
    if found.case.infos[0].device.startswith("cuda") and loop.pin_memory is False:
        words.append("Set pin_memory=True: without it the host stops for each copy to the device.")
    running = (loop.loader_workers or 0) * found.case.devices_per_host
    if running > cores:
        words.append(
            f"{things(running, 'worker')} run on {things(cores, 'core')}: they take cores "
            "from each other "
            "and from training."
        )
    return tuple(words)
