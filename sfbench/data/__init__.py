"""For training scripts: data made once per node, shared out once per rank.

Each name removes one fault that does not fail loudly: ``once_per_node`` the race for one file,
``staged`` the half-written file, ``shard`` and ``distributed_loader`` ranks that train on the same
samples or in the same order. Only ``distributed_loader`` imports torch, when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfbench.data.once import OncePerNodeError, once_per_node
from sfbench.data.ranks import is_primary
from sfbench.data.sharding import shard
from sfbench.data.staging import staged

if TYPE_CHECKING:
    from sfbench.data.loader import distributed_loader

__all__ = [
    "OncePerNodeError",
    "distributed_loader",
    "is_primary",
    "once_per_node",
    "shard",
    "staged",
]


def __getattr__(name: str) -> Any:
    """Import torch only for who asks for the loader."""
    if name == "distributed_loader":
        from sfbench.data.loader import distributed_loader

        return distributed_loader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
