"""Where the nodes of a launch meet. All are known beforehand: none joins, leaves or restarts.

torch's own handlers fit less well. The c10d one waits a random time of up to 0.3 s before each
start and numbers nodes by address, not by ``--node-rank``; the static one keeps one store, so the
second launch of a sweep would read the keys of the first.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)

from sfbench.common.errors import UsageError
from sfbench.launch.outcome import LaunchError
from sfbench.plan.sweep_plan import NodeJob

_LOCALHOST = "127.0.0.1"
_FAILURE = "failure"


def meeting_store(node_job: NodeJob) -> Store | None:
    """The store at ``rdzv_endpoint``, kept by node 0 over all launches; None on a single node.

    Raises ``UsageError`` where the endpoint is not HOST:PORT, and what torch raises where node 0 is
    not reached within the launch's time-out.
    """
    if node_job.nnodes == 1:
        return None
    host, port = endpoint(node_job.rdzv_endpoint)
    return TCPStore(
        host,
        port,
        is_master=node_job.node_rank == 0,
        wait_for_workers=False,
        timeout=timedelta(seconds=node_job.timeout_s),
    )


def endpoint(text: str | None) -> tuple[str, int]:
    """Split HOST:PORT. Raises ``UsageError`` for anything else."""
    host, _, port = (text or "").rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(
            f"--rdzv-endpoint is {text!r}: several nodes need HOST:PORT of the node with "
            "--node-rank 0, the same on all."
        )
    return host.strip("[]"), int(port)


class FixedRendezvous(RendezvousHandler):
    """A launch's own store for its ranks, on a port that the system picks on node 0."""

    def __init__(self, node_job: NodeJob, launch: int, meeting: Store | None) -> None:
        self._job = node_job
        self._run_id = f"{node_job.run_id}-{launch}"
        self._meeting = meeting
        self._server: TCPStore | None = None
        self._store: Store | None = None

    @property
    def use_agent_store(self) -> bool:
        """Ranks may use the store that this makes."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Make or find this launch's store."""
        rank, nodes = self._job.node_rank, self._job.nnodes
        host = _LOCALHOST if nodes == 1 else endpoint(self._job.rdzv_endpoint)[0]
        port = None
        if rank == 0:
            self._server = TCPStore(host, 0, is_master=True, wait_for_workers=False)
            port = self._server.port
        meeting = self._server if self._meeting is None else self._meeting
        if meeting is None:
            raise UsageError("a node that is not the first needs an --rdzv-endpoint")
        store = self._store = PrefixStore(f"launch/{self._run_id}", meeting)
        address = RendezvousStoreInfo.build(rank, store, host, server_port=port)
        return RendezvousInfo(store, rank, nodes, address)

    def tell_failure(self, error: LaunchError) -> None:
        """Let the other nodes know, so that their ranks do not wait for those of this one."""
        if self._store is not None and self._job.nnodes > 1:
            here = f" (On the node with rank {self._job.node_rank}, where its log is.)"
            told = replace(error, message=error.message + here, last_lines=(), log=None)
            # compare_set: the first node to fail is the one that is heard.
            self._store.compare_set(_FAILURE, "", json.dumps(asdict(told)))

    def failure_elsewhere(self) -> LaunchError | None:
        """The first failure that another node told; None: there is none."""
        if self._store is None or self._job.nnodes == 1 or not self._store.check([_FAILURE]):
            return None
        values = json.loads(self._store.get(_FAILURE))
        return LaunchError(**{**values, "last_lines": ()})

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
