"""Where the nodes of a launch meet. All are known beforehand: none joins, leaves or restarts.

torch's own handlers fit less well. The c10d one waits a random time of up to 0.3 s before each
start and numbers nodes by address, not by ``--node-rank``; the static one keeps one store, so the
second launch of a sweep would read the keys of the first.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)

from sfbench.launch.meeting import FAILURE, endpoint, launch_prefix
from sfbench.launch.outcome import LaunchError, failure_of, failure_text
from sfbench.plan.sweep_plan import NodeJob

_LOCALHOST = "127.0.0.1"


def meeting_store(node_job: NodeJob) -> Store | None:
    """A connection to the store of the nodes' meeting; None on a single node.

    Raises ``UsageError`` if the endpoint is not HOST:PORT, and what torch raises if it is not
    reached within the launch's time-out.
    """
    if node_job.nnodes == 1:
        return None
    host, port = endpoint(node_job.rdzv_endpoint)
    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=node_job.timeout_s))


class FixedRendezvous(RendezvousHandler):
    """A launch's own store for its ranks.

    On one node on a port that the system picks; of several it is a part of their meeting's.
    """

    def __init__(self, node_job: NodeJob, launch: int, meeting: Store | None) -> None:
        self._job = node_job
        self._run_id = f"{node_job.run_id}-{launch}" if meeting is None else node_job.run_id
        self._meeting = meeting
        self._server: TCPStore | None = None
        self._store: Store | None = None

    @property
    def use_agent_store(self) -> bool:
        """Ranks may use the store that this makes."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Make or find this launch's store."""
        if self._meeting is None:
            self._server = TCPStore(_LOCALHOST, 0, is_master=True, wait_for_workers=False)
            place = RendezvousStoreInfo(_LOCALHOST, self._server.port)
            store: Store = self._server
        else:
            place = RendezvousStoreInfo(*endpoint(self._job.rdzv_endpoint))
            store = self._meeting
        self._store = PrefixStore(launch_prefix(self._run_id), store)
        return RendezvousInfo(self._store, self._job.node_rank, self._job.nnodes, place)

    def tell_failure(self, error: LaunchError) -> None:
        """Let the other nodes know, so that their ranks do not wait for those of this one."""
        if self._store is not None and self._job.nnodes > 1:
            here = f" (On node {self._job.node_rank}, {socket.gethostname()}.)"
            told = replace(error, message=error.message + here)
            # compare_set: the first node to fail is the one that is heard.
            self._store.compare_set(FAILURE, "", failure_text(told))

    def failure_elsewhere(self) -> LaunchError | None:
        """The first failure that another node told; None: there is none."""
        if self._store is None or self._job.nnodes == 1 or not self._store.check([FAILURE]):
            return None
        return failure_of(self._store.get(FAILURE))

    def get_backend(self) -> str:
        """A name for logs."""
        return "fixed"

    def get_run_id(self) -> str:
        """The same on all nodes of a launch, another for each launch."""
        return self._run_id

    def is_closed(self) -> bool:
        """Never: it serves one launch."""
        return False

    def set_closed(self) -> None:
        """Nothing else can join anyway."""

    def num_nodes_waiting(self) -> int:
        """None joins later."""
        return 0

    def shutdown(self) -> bool:
        """Free the port."""
        self._server = None
        return True
