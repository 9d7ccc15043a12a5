"""How often ranks have met in the script's groups, by torch's own count.

Compiled code, libraries and C++ are in it, whatever way they took.
"""

from __future__ import annotations

import torch.distributed as dist


def meetings() -> int:
    """Collectives that this rank has begun so far, in all groups of the script."""
    if not dist.is_initialized():
        return 0
    return sum(_begun(group) for group in list(dist.distributed_c10d._world.pg_map))


def _begun(group: dist.ProcessGroup) -> int:
    try:
        return int(group._get_sequence_number_for_group())  # type: ignore[attr-defined]
    except RuntimeError:  # of a backend that does not count
        return 0
