"""Which rank this process is, from the process group if there is one, else the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sfbench.common.errors import UsageError

# torchrun's name first, then what srun, Open MPI and MPICH give each task.
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_LOCAL_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
# SLURM_NTASKS is also set in a batch script that no srun started: it says nothing of this process.
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlace:
    """This process among the ranks of its node."""

    local_rank: int
    local_world_size: int
    """At least the ranks of this node; all ranks of the job if no launcher says it."""


def world() -> tuple[int, int]:
    """(rank, world size) over all nodes; (0, 1) outside a distributed job.

    The process group wins, since a script may have set it up with its own numbers; it cannot be up
    if torch.distributed was never imported, so this imports nothing.
    """
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return int(dist.get_rank()), int(dist.get_world_size())
    rank, size = _number(os.environ, _RANK), _number(os.environ, _WORLD_SIZE)
    return (0, 1) if rank is None or size is None else (rank, size)


def local_place() -> LocalPlace:
    """Where this process stands on its node.

    Raises ``UsageError`` if there are several ranks and none knows its local number (each would
    take itself for the first, and all would run what only one may), or the reverse.
    """
    size = world()[1]
    local_rank = _number(os.environ, _LOCAL_RANK)
    local_size = _number(os.environ, _LOCAL_SIZE)
    if local_rank is None:
        if size > 1:
            raise UsageError(
                f"There are {size} ranks but LOCAL_RANK is not set, so the ranks of a node cannot "
                "be told apart. Start the script with torchrun, or set LOCAL_RANK and "
                "LOCAL_WORLD_SIZE in each process before the first call."
            )
        return LocalPlace(local_rank=0, local_world_size=1)
    local_size = size if local_size is None else local_size
    if local_rank >= local_size:
        raise UsageError(
            f"LOCAL_RANK is {local_rank} but the node has {local_size} ranks by LOCAL_WORLD_SIZE "
            "or WORLD_SIZE. Start the script with torchrun, or set them in each process."
        )
    return LocalPlace(local_rank=local_rank, local_world_size=local_size)


def is_primary() -> bool:
    """True on global rank 0, before and after ``init_process_group`` and without it.

    For what the whole job does once: log, save a checkpoint. Data belongs in ``once_per_node``,
    since other nodes do not see this rank's files.
    """
    return world()[0] == 0


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        if name in environment:
            try:
                return int(environment[name])
            except ValueError:
                raise UsageError(f"{name}={environment[name]!r} is not a number.") from None
    return None
