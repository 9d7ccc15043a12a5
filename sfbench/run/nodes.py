"""The nodes of a sweep: the first one measures and says what comes next, the others follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sfbench.common.errors import UsageError
from sfbench.common.units import things
from sfbench.guard.scratch import scratch
from sfbench.launch.local import LocalLauncher
from sfbench.launch.meeting import FAILURE, LOST_S, Meeting, NodeLostError, launch_prefix
from sfbench.launch.node_messages import LaunchOrder, NodeEnd, NodeFacts, from_text, to_text
from sfbench.launch.outcome import (
    NODE_LOST,
    LaunchError,
    LaunchOutcome,
    OnProgress,
    failure_text,
)
from sfbench.plan.machine import Machine
from sfbench.plan.sweep_plan import NodeJob, SweepPlan
from sfbench.run.following_node import VERDICT, FollowingNode
from sfbench.run.node_facts import difference, facts_of
from sfbench.run.node_watch import LossWatch, Told, ToldError, failed, in_turn, tell_failure

Run = Callable[[NodeJob, OnProgress], LaunchOutcome]


@contextmanager
def running(plan: SweepPlan, machine: Machine) -> Iterator[Run]:
    """What runs each launch of a sweep, on this machine alone or as the first of several.

    Raises:
        UsageError: the endpoint is wrong or taken; a node differs from this one.
    """
    meeting = _meeting(plan) if plan.nnodes > 1 else None
    with LocalLauncher(threads=plan.threads_per_device, device_type=plan.device_type) as launcher:
        if meeting is None:
            yield launcher.run
            return
        with meeting:
            first = _FirstNode(plan, machine, launcher, meeting)
            try:
                first.gather()
                yield first.run
            except BaseException as error:
                first.tell_over(_why(error))
                raise
            first.tell_over("")


def follow(plan: SweepPlan, machine: Machine, told: Callable[[str], None]) -> None:
    """Be a node that is not the first, until that says that the sweep is over.

    ``told`` hears what a person at this node may want to know.

    Raises:
        UsageError: the endpoint is wrong, or this node differs from the first.
        MeasureError: the first node did not come, is lost, or could not go on.
    """
    place = _meeting(plan, told)
    with (
        LocalLauncher(threads=plan.threads_per_device, device_type=plan.device_type) as launcher,
        place as meeting,
        scratch("logs") as logs_dir,
    ):
        node = FollowingNode(plan, machine, launcher, meeting, logs_dir)
        node.introduce()
        told(f"node {plan.node_rank} of {plan.nnodes}: ready; the first node tells what to run")
        node.serve(told)


def _meeting(plan: SweepPlan, told: Callable[[str], None] = lambda _: None) -> Meeting:
    """Where they meet; what is wrong with it at first sight is told before anything is started."""
    meeting = Meeting(
        text=str(plan.rdzv_endpoint),
        nnodes=plan.nnodes,
        node_rank=plan.node_rank,
        timeout_s=plan.timeout_s,
    )
    meeting.look(told)
    return meeting


def _why(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "the sweep was interrupted on the first node"
    return f"the first node could not go on: {error or type(error).__name__}"


class _FirstNode:
    def __init__(
        self, plan: SweepPlan, machine: Machine, launcher: LocalLauncher, meeting: Meeting
    ) -> None:
        self._plan, self._machine = plan, machine
        self._launcher, self._meeting = launcher, meeting
        self._orders = 0
        self._hosts: dict[int, str] = {}
        self._address = meeting.address
        self._running: str | None = None
        """``run_id`` of the launch that other nodes take part in."""

    def gather(self) -> None:
        """Wait for all nodes, and refuse one that differs. One that does not come is lost.

        Raises:
            UsageError: a node differs; all are told.
        """
        meeting, until_s = self._meeting, time.monotonic() + self._plan.timeout_s
        mine = facts_of(self._plan, self._machine, meeting.address, meeting.reached, 0.0)
        for node in range(1, self._plan.nnodes):
            text = meeting.wait(f"facts/{node}", lambda: time.monotonic() > until_s)
            if text is None:
                meeting.give_up(node, self._absent(node))
                continue
            theirs = from_text(NodeFacts, text)
            self._hosts[node] = theirs.host
            meeting.expect(node)
            differs = difference(mine, theirs)
            if differs is not None:
                message = (
                    f"node {node} ({theirs.host}) differs from node 0 ({mine.host}): {differs}"
                )
                meeting.put(VERDICT, message)
                raise UsageError(message)
            self._address = theirs.reached
        meeting.put(VERDICT, "")

    def _absent(self, node: int) -> str:
        return (
            f"it did not come to {self._plan.rdzv_endpoint} within {self._plan.timeout_s:g} s "
            f"(--timeout); run the same command there with --node-rank {node}"
        )

    def run(self, node_job: NodeJob, on_progress: OnProgress) -> LaunchOutcome:
        """Run one launch on the nodes that it needs."""
        others = range(1, node_job.nnodes)
        start_s = time.monotonic()
        lost = self._lost(others)
        if lost is not None:
            return failed(self._error(node_job, lost), start_s)
        if not others:
            return self._launcher.run(node_job, on_progress)
        number = self._order(node_job)
        self._running = node_job.run_id
        watch = LossWatch(self._meeting, others, lambda node: self._tell(node_job, node))
        told = Told(self._meeting, node_job.run_id)
        try:
            outcome = self._launcher.run(
                replace(node_job, address=self._address), on_progress, in_turn(watch, told)
            )
        except NodeLostError:  # it did not hear in time, and was ended
            outcome = failed(self._error(node_job, watch.lost), start_s)
        except ToldError as ended:
            outcome = failed(ended.error, start_s)
        if outcome.error is not None:  # also a launcher's own failure, which no agent tells
            tell_failure(self._meeting, node_job.run_id, outcome.error)
        self._running = None
        return self._with_ends(node_job, outcome, number)

    def tell_over(self, why: str) -> None:
        """No launch follows."""
        if self._running is not None:
            error = LaunchError(
                kind="interrupted", rank=None, message=why, last_lines=(), log=None,
                script_fault=False,
            )  # fmt: skip
            self._put_failure(self._running, error)
        self._meeting.put(f"order/{self._orders}", to_text(LaunchOrder(over=why)))

    def _order(self, node_job: NodeJob) -> int:
        number, self._orders = self._orders, self._orders + 1
        order = LaunchOrder(
            run_id=node_job.run_id,
            spread=node_job.spread,
            timeout_s=node_job.timeout_s,
            log_name=node_job.log_dir.name,
            probe=node_job.job.probe,
        )
        self._meeting.put(f"order/{number}", to_text(order))
        return number

    def _lost(self, nodes: range) -> int | None:
        return next((node for node in nodes if self._meeting.why_lost(node) is not None), None)

    def _tell(self, node_job: NodeJob, node: int) -> None:
        """All nodes of a launch hear that one is lost."""
        self._put_failure(node_job.run_id, self._error(node_job, node))

    def _put_failure(self, run_id: str, error: LaunchError) -> None:
        self._meeting.put(f"{launch_prefix(run_id)}/{FAILURE}", failure_text(error))

    def _name(self, node: int) -> str:
        host = self._hosts.get(node)
        return f"node {node}" + (f" ({host})" if host else "")

    def _error(self, node_job: NodeJob, node: int) -> LaunchError:
        message = (
            f"At {things(node_job.devices, 'device')} {self._name(node)} is lost: "
            f"{self._meeting.why_lost(node)}. "
            "What was measured before is kept."
        )
        return LaunchError(
            kind=NODE_LOST, rank=None, message=message, last_lines=(), log=None, script_fault=False
        )

    def _with_ends(self, node_job: NodeJob, outcome: LaunchOutcome, number: int) -> LaunchOutcome:
        """Bring in what the other nodes left; name the node where that is why a launch failed."""
        until_s = time.monotonic() + LOST_S + 2
        for node in range(1, node_job.nnodes):
            text = self._meeting.wait(
                f"end/{number}/{node}",
                lambda node=node: (
                    self._meeting.why_lost(node) is not None  # type: ignore[misc]
                    or time.monotonic() > until_s
                ),
            )
            if text is not None:
                end = from_text(NodeEnd, text)
                self._keep(node_job, end)
                outcome = self._noted(outcome, node, end)
        error, lost = outcome.error, self._lost(range(1, node_job.nnodes))
        if error is None or error.kind in {NODE_LOST, "interrupted"} or lost is None:
            return outcome
        named = self._error(node_job, lost)
        return replace(
            outcome, error=replace(named, message=f"{named.message} Seen here: {error.message}")
        )

    def _noted(self, outcome: LaunchOutcome, node: int, end: NodeEnd) -> LaunchOutcome:
        """A failure on another node that came too late to end the launch is said all the same."""
        if outcome.status != "ok" or end.error is None:
            return outcome
        note = f"{self._name(node)} failed after all was measured: {end.error.message}"
        return replace(outcome, notes=(*outcome.notes, note))

    def _keep(self, node_job: NodeJob, end: NodeEnd) -> None:
        for folder, files in (
            (node_job.log_dir, end.logs),
            (Path(node_job.job.launch_dir), end.evidence),
        ):
            for name, text in files.items():
                (folder / Path(name).name).write_text(text, encoding="utf-8")
