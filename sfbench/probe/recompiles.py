"""Whether torch.compile compiled anew: such steps last seconds, and are not the job's speed."""

from __future__ import annotations

from torch._dynamo.utils import counters


def compilations() -> int:
    """How often so far, in this process. A script may reset it: only a change says something."""
    return int(counters["frames"]["total"])
