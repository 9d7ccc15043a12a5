"""What the command line process and the host process say to each other, over a socket pair.

To the host: ``RunRequest``, one at a time; the end of the stream means "end everything". From the
host: any number of ``Progress``, then one ``LaunchOutcome`` for each request. Values are pickled;
both ends are the same installation and user. Nothing else is written to the socket: what ranks or
libraries print goes to logs.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfbench.guard.ticket import Ticket
from sfbench.plan.sweep_plan import NodeJob

MARK = "SFBENCH_HOST"
"""Environment variable whose value marks every process below one host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Run one launch."""

    node_job: NodeJob
    entry: str
    """``module:function`` that each rank calls with its RankJob."""
    launch: int
    """How many launches came before, the same on all nodes of a job."""
    guard: Ticket | None = None
    """None: the script may write where it likes."""
