"""For training scripts: data made once per node, shared out once per rank.

Each name removes one fault that does not fail loudly: ``once_per_node`` the race for one file,
``staged`` the half-written file, ``shard`` and ``distributed_loader`` ranks that train on the same
samples or in the same order. Importing this needs no torch.
"""

from __future__ import annotations

from sfbench.data.once import OncePerNodeError, once_per_node
from sfbench.data.ranks import is_primary

__all__ = ["OncePerNodeError", "is_primary", "once_per_node"]
