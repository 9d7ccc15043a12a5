"""The end of a measurement: every rank's facts become one record, written by rank 0."""

from __future__ import annotations

import hashlib
import math
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sfbench.common.schema import (
    STEP_COLUMNS,
    AllReduceTime,
    LateStep,
    LaunchRecord,
    ModuleFile,
    RankInfo,
    RankLoad,
    Rung,
    SaveInfo,
)
from sfbench.probe import checkout
from sfbench.probe.allreduce import time_all_reduce, wanted_sizes
from sfbench.probe.device import Accelerator
from sfbench.probe.hooks.fetching import FetchCost
from sfbench.probe.hooks.passes import pass_length
from sfbench.probe.loop.description import device_of
from sfbench.probe.replaying.memory import is_out_of_memory
from sfbench.probe.replaying.resize import SCALES
from sfbench.probe.replaying.weights import checksum
from sfbench.probe.state import State
from sfbench.probe.stop import Refused
from sfbench.protocol import record_file
from sfbench.protocol.evidence import RankEvidence
from sfbench.protocol.records import NODE_ADDRESS

GROUP_AGAIN = (
    "the script ends its process group and opens another one: measured is what it trained before"
)
"""Whether it trains another model then is not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPayload:
    """What a rank sends to rank 0."""

    steps: npt.NDArray[np.float64]
    info: RankInfo
    load: RankLoad
    saves: tuple[SaveInfo, ...]
    weights: float | None
    """None: ranks run apart just now, or there was no memory to add them up."""
    evidence: RankEvidence
    late: tuple[LateStep, ...]
    next_training: int
    modules: tuple[ModuleFile, ...]
    met_s: float
    """When all ranks were at one place, by this host's clock; 0: there is one host."""
    """Where the gate asked for a checkout: what this rank imported; none: the same as rank 0."""


def all_reduce_times(state: State) -> tuple[AllReduceTime, ...]:
    """In the same launch, on the same group: what the job's buckets cost by themselves.

    Nothing where there is no DDP model, one device, or only the train rung is wanted.
    """
    info, model = state.loop_info, next(iter(state.models.models), None)
    if info is None or model is None or state.world_size == 1 or "cached" not in state.rungs:
        return ()
    # A model may lie on several devices, and the first optimizer on another one than its gradients.
    device = model.device
    accelerator = None if device.type == "cpu" else Accelerator(device)
    sizes = wanted_sizes(info.bucket_bytes)
    return time_all_reduce(state.control, model.process_group, device, sizes, accelerator)


def refuse_unsteady(state: State) -> None:
    """Where every step of the job on some rank held what is not the job's: no figure is true.

    Raises:
        Refused: that is so. All ranks come here, and raise alike.
    """
    steps = state.steps
    told = state.control.all_gather((steps.measured, steps.recompiled, steps.excluded))
    rank = next((r for r, seen in enumerate(told) if seen[0] == 0), None)
    if rank is None or not (told[rank][1] or told[rank][2]):
        return
    raise Refused("unsteady", _COMPILES if told[rank][1] else _VALIDATES)


_COMPILES = (
    "torch.compile compiles anew in every part of the run, long after warmup: its times are not "
    "the job's. TORCH_LOGS=recompiles tells why; mark sizes that change as dynamic."
)
_VALIDATES = (
    "Every step holds a validation or a save. On an accelerator their time cannot be told from the "
    "step's: let some steps pass between two of them."
)


def write_record(
    state: State,
    evidence: RankEvidence,
    *,
    ended_early: bool,
    all_reduce: tuple[AllReduceTime, ...],
) -> None:
    """Gather every rank's payload; rank 0 writes the record. All ranks call it alike."""
    payloads = state.control.gather(_payload(state, evidence))
    state.updates.settle()
    if payloads is not None:
        header = _record(state, payloads, ended_early, all_reduce)
        record_file.write(Path(state.job.launch_dir), header, _table(payloads))


def write_so_far(state: State, evidence: RankEvidence, rung: Rung) -> None:
    """The same before a risk: it says what happened, which is told only if it comes true."""
    payloads = state.control.gather(_payload(state, evidence))
    if payloads is None:
        return
    header = _record(state, payloads, ended_early=False, all_reduce=())
    reason = f"no memory: what sfbench takes for the rung {rung} did not fit beside the script"
    if rung in SCALES:
        reason = f"the script failed with a batch {SCALES[rung]:g} times as large"
    header = replace(
        header,
        stop_reason="memory",
        unavailable={rung: reason, **header.unavailable},
        notes=(*header.notes, f"measuring ended before its time: {reason}"),
    )
    record_file.write(Path(state.job.launch_dir), header, _table(payloads), record_file.SO_FAR)


def _table(payloads: Sequence[RankPayload]) -> npt.NDArray[np.float64]:
    return np.concatenate([_by_first_clock(p, payloads[0]) for p in payloads])


def _by_first_clock(payload: RankPayload, first: RankPayload) -> npt.NDArray[np.float64]:
    """A rank's steps, with its host's own time as the first rank's host tells it."""
    if payload.info.node == first.info.node:
        return payload.steps
    steps = payload.steps.copy()
    steps[:, STEP_COLUMNS.index("host_s")] += first.met_s - payload.met_s
    return steps


def _met_s(state: State) -> float:
    if NODE_ADDRESS not in os.environ:
        return 0.0
    state.control.all_gather(None)
    return time.perf_counter()


def _payload(state: State, evidence: RankEvidence) -> RankPayload:
    optimizers = list(state.updates.by_key.values())
    accelerator = state.clock.accelerator
    memory_bytes, gpu_uuid = accelerator.identity() if accelerator is not None else (0, "")
    info = RankInfo(
        rank=state.rank,
        local_rank=state.local_rank,
        host=socket.gethostname(),
        node=int(os.environ.get("GROUP_RANK", "0")),
        device=device_of(optimizers),
        pid=os.getpid(),
        threads=torch.get_num_threads(),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        memory_bytes=memory_bytes,
        gpu_uuid=gpu_uuid,
    )
    return RankPayload(
        steps=state.steps.array(),
        info=info,
        load=state.loads.load(state.rank, _fetch_cost(state)),
        saves=tuple(state.saves.saves),
        weights=_weights(state, optimizers),
        evidence=evidence,
        late=state.late.found(),
        next_training=state.next_training,
        modules=_modules(state),
        met_s=_met_s(state),
    )


def _weights(state: State, optimizers: Sequence[Any]) -> float | None:
    if state.models.sync_off:
        return None
    try:
        return checksum(optimizers)
    except RuntimeError as error:
        if is_out_of_memory(error):
            return None
        raise


def _modules(state: State) -> tuple[ModuleFile, ...]:
    """Ranks as a rule import the same: only those that do not send theirs."""
    if state.job.code is None:
        return ()
    mine = checkout.together([checkout.imported(state.job.code), state.fetching.modules()])
    digest = hashlib.sha256(repr(mine).encode()).digest()
    first = state.control.all_gather(digest)[0]
    return () if state.rank and digest == first else mine


def _steps_per_pass(state: State) -> int | None:
    primary = state.flow.loop.primary if state.flow.loop is not None else None
    fetches = pass_length(state.loaders.loaders.get(primary))
    if fetches is None or not state.steps.fetches:
        return None
    return max(1, round(fetches * state.steps.count / state.steps.fetches))


def _kept_batches(state: State) -> int:
    ring, loop = state.replay.ring, state.flow.loop
    return ring.count(loop.primary) if ring is not None and loop is not None else 0


def _fetch_cost(state: State) -> FetchCost | None:
    primary = state.flow.loop.primary if state.flow.loop is not None else None
    loader = state.loaders.loaders.get(primary)
    if loader is not None and loader.num_workers == 0:
        return _own_fetches(state)
    return state.fetching.cost(primary[0]) if isinstance(primary, tuple) else None


def _own_fetches(state: State) -> FetchCost | None:
    """Without workers: waits of measured train steps, and the CPU time that cached ones lack."""
    columns = {name: i for i, name in enumerate(STEP_COLUMNS)}
    rows = state.steps.array()
    train = rows[(rows[:, columns["rung"]] == 0) & (rows[:, columns["measured"]] == 1)]
    batches = round(len(train) * state.steps.fetches / max(1, state.steps.count))
    if not batches:
        return None
    wall_s = float(train[:, columns["data_wait_s"]].sum())
    cpu_s = state.loads.cpu_above_cached_s()
    return FetchCost(
        batches=batches,
        wall_s=wall_s,
        cpu_s=wall_s if cpu_s is None else min(wall_s, max(0.0, cpu_s * len(train))),
        delay_s=0.0,
    )


def _weight_notes(weights: Sequence[float]) -> list[str]:
    """What the replicas' checksums say that a reader has to know."""
    if not weights:
        return []
    if not any(map(math.isfinite, weights)):
        return ["the weights are not finite at the end: training diverges, which changes its speed"]
    return ["the ranks' weights differ at the end"] if len(set(weights)) > 1 else []


def note_next_training(state: State) -> None:
    """The record is written, and the script goes on to train something else: rank 0 adds that."""
    folder = Path(state.job.launch_dir)
    if state.rank == 0 and state.updates.made_since and state.loop_info is not None:
        record_file.add_note(folder, one_of_several(state.loop_info.parameters, 0))


def note_group_again(state: State) -> None:
    """The record is written, and the script opens a group again: who is not parked adds that."""
    if state.rank == max(0, state.command.turn):
        record_file.add_note(Path(state.job.launch_dir), GROUP_AGAIN)


def one_of_several(measured: int, following: int) -> str:
    """What a reader has to know of a script that trains one model after another.

    ``measured``, ``following``: their parameters; 0: not known.
    """
    other = f" (the next has {following:,})" if following else ""
    return (
        "the script trains one model after another: measured is the first, of "
        f"{measured:,} parameters, until it was over{other}. To measure another one, let the "
        "script's arguments leave those before it out"
    )


def _record(
    state: State,
    payloads: list[RankPayload],
    ended_early: bool,
    all_reduce: tuple[AllReduceTime, ...],
) -> LaunchRecord:
    assert state.loop_info is not None
    steps = state.steps
    notes = list(state.notes)
    following = max(p.next_training for p in payloads)
    if following:
        notes.append(one_of_several(state.loop_info.parameters, following))
    if steps.recompiled:
        notes.append(
            f"torch.compile compiled anew after warmup: {steps.recompiled} blocks are left out"
        )
    if state.loop_info.wrapper == "ddp":
        notes += _weight_notes([p.weights for p in payloads if p.weights is not None])
    warmup_steps = sum(1 for row in payloads[0].steps if row[2] < 0)
    return LaunchRecord(
        world_size=state.world_size,
        warmup_steps=warmup_steps,
        ended_early=ended_early and not following,
        stop_reason="script-ended" if ended_early else state.stop_reason,
        ranks=tuple(p.info for p in payloads),
        loop=replace(
            state.loop_info,
            fetches_per_step=steps.fetches / steps.count,
            steps_per_pass=_steps_per_pass(state),
        ),
        unavailable=state.unavailable,
        saves=tuple(s for p in payloads for s in p.saves),
        notes=tuple(notes),
        evidence=tuple(p.evidence for p in payloads),
        late=tuple(step for p in payloads for step in p.late),
        loads=tuple(p.load for p in payloads),
        all_reduce=all_reduce,
        own_collectives=state.collectives.per_step(warmup_steps),
        kept_batches=_kept_batches(state),
        modules=checkout.together(p.modules for p in payloads),
        setup_s=state.first_step_s - state.started,
        warmup_s=state.measuring_began - state.first_step_s,
        measured_s=time.perf_counter() - state.measuring_began,
    )
