"""Puts into words what the probe understood of a loop, its model and its device."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from sfbench.common.schema import LoopInfo
from sfbench.probe.device import parameters_of
from sfbench.probe.hooks.events import Event, Fetch, Forward, Update
from sfbench.probe.loop.crosscheck import cross_check, steps_seen
from sfbench.probe.loop.discovery import Loop
from sfbench.probe.state import State


def gradient_bytes(optimizers: Iterable[Any]) -> int:
    """Bytes of the gradients that these optimizers use."""
    return sum(
        p.numel() * p.element_size() for p in parameters_of(optimizers) if p.grad is not None
    )


def is_sharded(optimizer: Any) -> bool:
    """Whether parameters live in shards: DTensor (fully_shard) or FSDP's flat parameters."""
    names = {type(p).__name__ for p in parameters_of([optimizer])}
    return bool(names & {"DTensor", "FlatParameter"}) or any(
        hasattr(p, "_is_flat_param") or hasattr(p, "_fsdp_flattened")
        for p in parameters_of([optimizer])
    )


def device_of(optimizers: Iterable[Any]) -> str:
    """The device of the first parameter, as torch writes it."""
    for parameter in parameters_of(optimizers):
        return str(parameter.device)
    return "unknown"


def samples_seen(events: Sequence[Event], loop: Loop) -> int:
    """Samples that these events tell of a loop."""
    keys = {loop.model} if loop.trained or not loop.counting else loop.counting
    counted = [e for e in events if isinstance(e, Fetch | Forward) and e.key in keys]
    return sum(e.samples for e in counted)


def describe_loop(state: State, loop: Loop, wrapper: str) -> LoopInfo:
    """LoopInfo of a loop just found, from the events kept so far."""
    loader = state.loaders.loaders.get(loop.primary)
    optimizers = list(state.updates.by_key.values())
    model = next(iter(state.models.models), None)
    steps = max(1, len(_of(state, Update, loop.anchor)) // loop.updates_per_step)
    fetches = [f for f in _of(state, Fetch, loop.primary) if not f.started]
    samples = [f.samples for f in fetches] or [
        f.samples for f in _of(state, Forward, loop.model) if f.grad
    ]
    per_fetch = sum(samples) / max(1, len(samples))
    if loop.trained:
        seen = steps_seen(loop, state.flow.kept, loop.model)
        per_fetch = sum(s.given for s in seen) / max(1, sum(s.fetches for s in seen))
    return LoopInfo(
        samples_from="model-input" if loop.trained else samples_source(state, loop),
        fetches_per_step=len(fetches) / steps,
        batch_per_fetch=per_fetch,
        loader_workers=loader.num_workers if loader is not None else None,
        prefetch_factor=loader.prefetch_factor if loader is not None else None,
        persistent_workers=loader.persistent_workers if loader is not None else None,
        pin_memory=bool(loader.pin_memory) if loader is not None else None,
        optimizer=type(state.updates.by_key[_int(loop.anchor)]).__name__,
        backend=dist.get_backend() if dist.is_initialized() else None,
        wrapper=wrapper,
        parameters=sum(p.numel() for p in parameters_of(optimizers)),
        gradient_bytes=gradient_bytes(optimizers),
        bucket_bytes=_buckets(model),
        find_unused_parameters=model.find_unused_parameters if model is not None else None,
        static_graph=model.static_graph if model is not None else None,
        gradient_as_bucket_view=model.gradient_as_bucket_view if model is not None else None,
        buffers=sum(1 for _ in model.buffers()) if model is not None else None,
        dtype=next((str(p.dtype).removeprefix("torch.") for p in parameters_of(optimizers)), ""),
        nccl=_nccl(),
        emulated=bool(getattr(sys.modules["__main__"], "SFBENCH_EMULATED", False)),
    )


def checked_loop(state: State, loop: Loop, events: Sequence[Event]) -> Loop:
    """The loop, with samples counted where they are known best; what disagrees is noted."""
    by_index = samples_source(state, loop) == "indices"
    found = cross_check(loop, events, by_index=by_index, world_size=state.world_size)
    if found.note:
        state.notes.append(found.note)
    return found.loop


def gives(info: LoopInfo, global_batch: int, world_size: int) -> bool:
    """Whether a loop's batches are those of a global batch that was asked for."""
    seen = info.batch_per_fetch * world_size
    if info.samples_from == "model-input" and info.fetches_per_step > 1:
        # Of single samples, or if one rank reads for all, a step's are compared.
        return round(seen * info.fetches_per_step) % global_batch == 0
    return round(seen) == global_batch


def _nccl() -> str | None:
    if not dist.is_initialized() or "nccl" not in str(dist.get_backend()):
        return None
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]


def _of(state: State, kind: type, key: Any) -> list[Any]:
    return [e for e in state.flow.kept if isinstance(e, kind) and getattr(e, "key", 0) == key]


def samples_source(state: State, loop: Loop) -> str:
    """Where a loader's samples are counted: indices | batch | batches(); without: model-input."""
    if loop.primary is None:
        return "model-input"
    if isinstance(loop.primary, int):
        return "batches()"
    source = state.loaders.sources.get(state.loaders.iterators.get(loop.primary))
    return "indices" if source is not None and source.counted else "batch"


def _buckets(model: Any) -> tuple[int, ...]:
    """Sizes in bytes of DDP's gradient buckets, in the order in which they are reduced."""
    if model is None:
        return ()
    data = model._get_ddp_logging_data()
    sizes = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or ""
    return tuple(int(size) for size in str(sizes).split(",") if size.strip())


def _int(key: Any) -> int:
    assert isinstance(key, int)
    return key
