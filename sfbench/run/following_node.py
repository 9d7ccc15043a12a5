"""A node that is not the first: it runs what the first one orders, and tells how that went."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sfbench.common.errors import MeasureError, UsageError
from sfbench.common.schema import RankJob
from sfbench.guard.scratch import scratch
from sfbench.launch.local import LocalLauncher
from sfbench.launch.meeting import CLOCK, Meeting
from sfbench.launch.node_messages import (
    LaunchOrder,
    NodeEnd,
    fitting,
    from_text,
    to_text,
)
from sfbench.launch.outcome import LaunchOutcome, Progress
from sfbench.plan.machine import Machine
from sfbench.plan.planner import pinning
from sfbench.plan.sweep_plan import NodeJob, SweepPlan
from sfbench.run.node_facts import facts_of
from sfbench.run.node_watch import Told, ToldError, failed, in_turn, tell_failure

_LOG_END = 65_536
"""So much of each log comes to the first node."""
VERDICT = "verdict"
"""The first node's, on all: empty, or which node differs and in what."""


class FollowingNode:
    """One per sweep."""

    def __init__(
        self,
        plan: SweepPlan,
        machine: Machine,
        launcher: LocalLauncher,
        meeting: Meeting,
        logs_dir: Path,
    ) -> None:
        self._plan, self._machine, self._logs_dir = plan, machine, logs_dir
        self._launcher, self._meeting = launcher, meeting

    def introduce(self) -> None:
        """Tell the first node of this one, and hear whether it fits."""
        meeting = self._meeting
        clock = meeting.wait(CLOCK, _after(self._plan.timeout_s))
        ahead_s = 0.0 if clock is None else time.time() - float(clock)
        facts = facts_of(self._plan, self._machine, meeting.address, meeting.reached, ahead_s)
        meeting.put(f"facts/{self._plan.node_rank}", to_text(facts))
        verdict = meeting.wait(VERDICT, _after(2 * self._plan.timeout_s))
        if verdict is None:
            raise MeasureError(f"the first node ({self._plan.rdzv_endpoint}) does not go on")
        if verdict:
            raise UsageError(verdict.decode())

    def serve(self, told: Callable[[str], None]) -> None:
        """Run what the first node orders."""
        number = 0
        while text := self._meeting.wait(f"order/{number}"):
            order = from_text(LaunchOrder, text)
            if order.over is not None:
                if order.over:
                    raise MeasureError(order.over)
                return
            if self._plan.node_rank < len(order.spread):
                end = self._run(order)
                self._meeting.put(f"end/{number}/{self._plan.node_rank}", to_text(end))
                told(f"node {self._plan.node_rank}: {order.log_name}: {end.status}")
            number += 1

    def _run(self, order: LaunchOrder) -> NodeEnd:
        log_dir = self._logs_dir / order.log_name
        with scratch("launch") as launch_dir:
            node_job = self._node_job(order, launch_dir, log_dir)
            outcome = self._launched(node_job)
            ended = outcome.status != "ok"
            return fitting(
                NodeEnd(
                    status=outcome.status,
                    error=outcome.error,
                    logs=_ends_of(log_dir, "rank*.log") if ended else {},
                    evidence=_ends_of(launch_dir, "evidence-*.json") if ended else {},
                )
            )

    def _launched(self, node_job: NodeJob) -> LaunchOutcome:
        """Run it; a failure is told at once, also the launcher's own, which no agent tells."""
        told, start_s = Told(self._meeting, node_job.run_id), time.monotonic()
        try:
            outcome = self._launcher.run(node_job, _unheard, in_turn(self._meeting.check, told))
        except ToldError as ended:
            return failed(ended.error, start_s)
        error = outcome.error
        if error is not None:
            here = f" (On node {node_job.node_rank}, {socket.gethostname()}.)"
            told_error = replace(error, message=error.message + here)
            tell_failure(self._meeting, node_job.run_id, told_error)
        return outcome

    def _node_job(self, order: LaunchOrder, launch_dir: Path, log_dir: Path) -> NodeJob:
        plan, nproc = self._plan, order.spread[self._plan.node_rank]
        job = RankJob(
            script=str(plan.target.script),
            module=plan.target.module,
            args=plan.target.args,
            launch_dir=str(launch_dir),
            threads=plan.threads_per_device,
            cores=pinning(plan, nproc, self._machine),
            device_type=plan.device_type,
            probe=order.probe,
        )
        return NodeJob(
            job=job,
            nproc=nproc,
            log_dir=log_dir,
            timeout_s=order.timeout_s,
            nnodes=len(order.spread),
            node_rank=plan.node_rank,
            rdzv_endpoint=plan.rdzv_endpoint,
            run_id=order.run_id,
            spread=order.spread,
            address=self._meeting.address,
        )


def _after(seconds: float) -> Callable[[], bool]:
    until_s = time.monotonic() + seconds
    return lambda: time.monotonic() > until_s


def _ends_of(folder: Path, pattern: str) -> dict[str, str]:
    """The end of each file, by name; a file for the checks is whole or not taken."""
    found = {}
    for path in sorted(folder.glob(pattern)):
        data = path.read_bytes()
        if path.suffix == ".log" or len(data) <= 16 * _LOG_END:
            found[path.name] = data[-_LOG_END if path.suffix == ".log" else 0 :].decode(
                errors="replace"
            )
    return found


def _unheard(progress: Progress) -> None:
    """The first node tells of the launch."""
