"""Runs launches in the host process and turns each end, also a failure of its own, into a value."""

from __future__ import annotations

import os
import time
import traceback
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from sfbench.common.units import things
from sfbench.guard.keeper import Keeper
from sfbench.guard.ticket import Ticket
from sfbench.launch.blame import LaunchEnd, judge, launcher_failed
from sfbench.launch.channel import RunRequest
from sfbench.launch.outcome import LaunchOutcome, OnProgress
from sfbench.launch.servers import ForkServers
from sfbench.launch.supervisor import Supervisor

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]


class Launches:
    """All launches of one host."""

    def __init__(self, servers: ForkServers) -> None:
        self._servers = servers
        self._stop_fd = os.eventfd(0)  # never read: once stopped, always stopped
        self._meeting: Store | None = None

    def stop(self) -> None:
        """End the launch that runs, and any later one at once. From any thread."""
        os.eventfd_write(self._stop_fd, 1)

    def run(self, request: RunRequest, on_progress: OnProgress) -> LaunchOutcome:
        """Run one launch to its end."""
        start_s = time.monotonic()
        try:
            with _watched(request.guard):
                end = self._run(request, on_progress)
            return _outcome(end, start_s)
        except Exception as error:  # whatever torch raises: the sweep hears of it and goes on
            with suppress(OSError):  # the disk that holds this process's log may be full
                traceback.print_exc()
            return _broken(request, error, start_s)

    def _run(self, request: RunRequest, on_progress: OnProgress) -> LaunchEnd:
        supervisor = Supervisor(request.node_job, on_progress, self._stop_fd)
        try:
            self._run_agent(request, supervisor)
        finally:
            supervisor.close()
        if supervisor.end is None:
            raise RuntimeError("the agent returned before the ranks ended")
        return supervisor.end

    def _run_agent(self, request: RunRequest, supervisor: Supervisor) -> None:
        # Here, since they import torch: the host starts its fork server and listens before that.
        from sfbench.launch.agent import run_agent
        from sfbench.launch.rendezvous import FixedRendezvous, meeting_store

        if self._meeting is None:
            self._meeting = meeting_store(request.node_job)
        rendezvous = FixedRendezvous(request.node_job, request.launch, self._meeting)
        run_agent(request, rendezvous, supervisor, self._servers)


def _watched(ticket: Ticket | None) -> AbstractContextManager[object]:
    """What a guard needs in this process while a launch runs."""
    return Keeper(ticket) if ticket is not None and ticket.kind == "journal" else nullcontext()


def _outcome(end: LaunchEnd, start_s: float) -> LaunchOutcome:
    verdict = judge(end)
    return LaunchOutcome(
        status=verdict.status,
        record=end.record if verdict.status == "ok" else None,
        error=verdict.error,
        notes=verdict.notes,
        start_s=start_s,
        wall_s=time.monotonic() - start_s,
    )


def _broken(request: RunRequest, error: Exception, start_s: float) -> LaunchOutcome:
    reason = traceback.format_exception_only(error)[-1].strip()
    message = f"At {things(request.node_job.devices, 'device')} the launcher failed: {reason}"
    return launcher_failed(message, start_s)
