"""torch's elastic agent, with this project's way to start, watch and end ranks.

The agent does the rendezvous, numbers the ranks, runs the loop and waits for the other nodes.
``LocalElasticAgent`` would do the rest, but gives a rank that ignores TERM 30 s, and takes one that
leaves by ``os._exit(0)`` for running for ever.
"""

from __future__ import annotations

from typing import Any, cast

from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)

from sfbench.launch import worker
from sfbench.launch.blame import judge
from sfbench.launch.channel import RunRequest
from sfbench.launch.rendezvous import FixedRendezvous
from sfbench.launch.servers import ForkServers
from sfbench.launch.supervisor import Supervisor

_LOOP_S = 0.001
"""Pause of the agent's loop; the supervisor waits for events itself."""
_NODES_S = 10.0
"""How long a node that is through waits for the others."""


def run_agent(
    request: RunRequest,
    rendezvous: FixedRendezvous,
    supervisor: Supervisor,
    servers: ForkServers,
) -> None:
    """Run one launch to its end, which the supervisor then holds. Raises what torch raises."""
    node_job = request.node_job
    spec = WorkerSpec(
        role="default",
        local_world_size=node_job.nproc,
        entrypoint=worker.enter,
        rdzv_handler=rendezvous,
        max_restarts=0,
        monitor_interval=_LOOP_S,
    )
    try:
        _Agent(spec, request, rendezvous, supervisor, servers).run()
    finally:
        rendezvous.shutdown()


class _Agent(SimpleElasticAgent):
    def __init__(
        self,
        spec: WorkerSpec,
        request: RunRequest,
        rendezvous: FixedRendezvous,
        supervisor: Supervisor,
        servers: ForkServers,
    ) -> None:
        super().__init__(spec, exit_barrier_timeout=_NODES_S)
        self._request = request
        self._nodes = rendezvous
        self._supervisor = supervisor
        self._servers = servers

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        start = node_start(self._request, worker_group)
        processes = self._servers.start(worker.enter, (start,), start.nproc)
        self._supervisor.watch_over(processes)
        return {rank: process.pid for rank, process in enumerate(processes)}

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self._supervisor.hear(self._nodes.failure_elsewhere())
        end = self._supervisor.tick()
        if end is None:
            return RunResult(state=WorkerState.HEALTHY)
        error = judge(end).error
        if error is None:
            values = {each.global_rank: None for each in worker_group.workers}
            return RunResult(state=WorkerState.SUCCEEDED, return_values=values)
        self._nodes.tell_failure(error)
        return RunResult(state=WorkerState.FAILED)

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        """Nothing to do: the supervisor has ended them."""

    def _shutdown(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: the supervisor's owner closes it."""


def node_start(request: RunRequest, group: WorkerGroup) -> worker.NodeStart:
    """What the agent found out, for the ranks."""
    node_job = request.node_job
    first = group.workers[0]
    return worker.NodeStart(
        entry=request.entry,
        job=node_job.job,
        guard=request.guard,
        log_dir=node_job.log_dir,
        nproc=node_job.nproc,
        first_rank=first.global_rank,
        world_size=first.world_size,
        node_rank=node_job.node_rank,
        nnodes=node_job.nnodes,
        master_addr=cast(str, group.master_addr),
        master_port=cast(int, group.master_port),
        address=node_job.address,
        run_id=group.spec.rdzv_handler.get_run_id(),
    )
