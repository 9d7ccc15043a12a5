"""Which ranks hold replicas of the same weights, and checksums to compare them by."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from sfbench.probe.replaying.weights import total_of

_MODEL_PARALLEL = {"tp", "sp", "cp", "pp", "ep", "mp", "tensor", "sequence", "context", "pipeline"}
"""Names of mesh dimensions along which ranks share one replica, and so the same samples."""


def data_peers(models: Sequence[Any], parameters: Sequence[Any], world_size: int) -> set[int]:
    """Ranks of this rank's data-parallel group: those that must see other samples than it does.

    The groups of its DDP models; for DTensors their mesh, but for the dimensions along which ranks
    share one replica; else all ranks.
    """
    if not dist.is_initialized():
        return set(range(world_size))
    if models:
        groups = [dist.get_process_group_ranks(model.process_group) for model in models]
        return {rank for group in groups for rank in group}
    meshes = [p.device_mesh for p in parameters if hasattr(p, "device_mesh")]
    if not meshes:
        return set(range(world_size))
    own = {dist.get_rank()}
    if not _is_fully_sharded():
        return own  # tensor parallel, and nothing else
    return own.union(*(_along_data(mesh) for mesh in meshes[:1]))


def _is_fully_sharded() -> bool:
    """Whether some module was given to fully_shard."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    kind = getattr(fsdp, "FSDPModule", None)
    # By its type alone: what a script's proxies stand for may be gone.
    return kind is not None and any(issubclass(type(thing), kind) for thing in gc.get_objects())


def _along_data(mesh: Any) -> set[int]:
    """Ranks of a mesh that differ from this one only along its data-parallel dimensions."""
    place = mesh.get_coordinate()
    names = mesh.mesh_dim_names or ("",) * mesh.mesh.dim()
    where = tuple(
        place[dim] if name.lower() in _MODEL_PARALLEL else slice(None)
        for dim, name in enumerate(names)
    )
    return {int(rank) for rank in mesh.mesh[where].flatten()}


def weight_sums(
    models: Iterable[Any], parameters: Iterable[Any]
) -> tuple[float | None, float | None]:
    """Checksums of the trained parameters that DDP keeps equal, and of those outside any DDP model.

    Without DDP the first one is over all. None if there are no such parameters; sharded ones
    are left out, since each rank holds others.
    """
    models = list(models)
    kept = {
        id(parameter)
        for model in models
        for name, parameter in model.module.named_parameters()
        if name not in model.parameters_to_ignore
    }
    inside: list[torch.Tensor] = []
    outside: list[torch.Tensor] = []
    for parameter in parameters:
        if not _is_shard(parameter):
            place = inside if id(parameter) in kept or not models else outside
            place.append(parameter)
    return (_sum(inside) if inside else None, _sum(outside) if outside else None)


def _is_shard(parameter: Any) -> bool:
    marks = ("device_mesh", "_is_flat_param", "_fsdp_flattened")
    return any(hasattr(parameter, mark) for mark in marks)


def _sum(parameters: Sequence[torch.Tensor]) -> float:
    # Halves and thirds do not cancel out where a value has moved from one place to another.
    return total_of(parameters) + total_of(_flat(p.detach())[::7] for p in parameters) / 3


def _flat(values: torch.Tensor) -> torch.Tensor:
    """All elements in the order of memory, without a copy (channels_last too)."""
    order = sorted(range(values.dim()), key=values.stride, reverse=True)
    return values.permute(order).reshape(-1)
