"""The nodes of a sweep: the first one measures and says what comes next, the others follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sfbench.common.errors import MeasureError, UsageError
from sfbench.common.schema import RankJob
from sfbench.common.units import things
from sfbench.guard.scratch import scratch
from sfbench.launch.local import LocalLauncher
from sfbench.launch.meeting import CLOCK, FAILURE, LOST_S, Meeting, NodeLostError, launch_prefix
from sfbench.launch.node_messages import LaunchOrder, NodeEnd, NodeFacts, from_text, to_text
from sfbench.launch.outcome import (
    NODE_LOST,
    LaunchError,
    LaunchOutcome,
    OnProgress,
    Progress,
    failure_text,
)
from sfbench.plan.machine import Machine
from sfbench.plan.planner import pinning
from sfbench.plan.sweep_plan import NodeJob, SweepPlan
from sfbench.run.node_facts import difference, facts_of

Run = Callable[[NodeJob, OnProgress], LaunchOutcome]

_LOG_END = 65_536
"""So much of each log of another node comes to the first."""
_HEAR_S = 5.0
"""A launch that was told of a lost node may end by itself for so long."""
_VERDICT = "verdict"


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
    place = _meeting(plan)
    with (
        LocalLauncher(threads=plan.threads_per_device, device_type=plan.device_type) as launcher,
        place as meeting,
        scratch("logs") as logs_dir,
    ):
        node = _Follower(plan, machine, launcher, meeting, logs_dir)
        node.introduce()
        told(f"node {plan.node_rank} of {plan.nnodes}: ready; the first node tells what to run")
        node.serve(told)


def _meeting(plan: SweepPlan) -> Meeting:
    """Where they meet; what is wrong with it at first sight is told before anything is started."""
    meeting = Meeting(
        text=str(plan.rdzv_endpoint),
        nnodes=plan.nnodes,
        node_rank=plan.node_rank,
        timeout_s=plan.timeout_s,
    )
    meeting.look()
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
                meeting.put(_VERDICT, message)
                raise UsageError(message)
            self._address = theirs.reached
        meeting.put(_VERDICT, "")

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
            return _failed(self._error(node_job, lost), start_s)
        if not others:
            return self._launcher.run(node_job, on_progress)
        number = self._order(node_job)
        self._running = node_job.run_id
        watch = _Watch(self._meeting, others, lambda node: self._tell(node_job, node))
        try:
            outcome = self._launcher.run(
                replace(node_job, address=self._address), on_progress, watch
            )
        except NodeLostError:  # it did not hear in time, and was ended
            outcome = _failed(self._error(node_job, watch.lost), start_s)
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

    def _error(self, node_job: NodeJob, node: int) -> LaunchError:
        host = self._hosts.get(node)
        name = f"node {node}" + (f" ({host})" if host else "")
        message = (
            f"At {things(node_job.devices, 'device')} {name} is lost: "
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
                self._keep(node_job, from_text(NodeEnd, text))
        error, lost = outcome.error, self._lost(range(1, node_job.nnodes))
        if error is None or error.kind in {NODE_LOST, "interrupted"} or lost is None:
            return outcome
        named = self._error(node_job, lost)
        return replace(
            outcome, error=replace(named, message=f"{named.message} Seen here: {error.message}")
        )

    def _keep(self, node_job: NodeJob, end: NodeEnd) -> None:
        for folder, files in (
            (node_job.log_dir, end.logs),
            (Path(node_job.job.launch_dir), end.evidence),
        ):
            for name, text in files.items():
                (folder / Path(name).name).write_text(text, encoding="utf-8")


class _Watch:
    """Looks after the other nodes while a launch runs."""

    def __init__(self, meeting: Meeting, others: range, tell: Callable[[int], None]) -> None:
        self._meeting, self._others, self._tell = meeting, others, tell
        self.lost = 0
        self._told_s: float | None = None

    def __call__(self) -> None:
        if self._told_s is not None:
            if time.monotonic() - self._told_s > _HEAR_S:
                raise NodeLostError(f"node {self.lost} is lost")
            return
        for node in self._others:
            if self._meeting.why_lost(node) is not None:
                self.lost, self._told_s = node, time.monotonic()
                self._tell(node)
                return


class _Follower:
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
        verdict = meeting.wait(_VERDICT, _after(2 * self._plan.timeout_s))
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
            outcome = self._launcher.run(node_job, _unheard, self._meeting.check)
            failed = outcome.status != "ok"
            return NodeEnd(
                status=outcome.status,
                error=outcome.error,
                logs=_ends_of(log_dir, "rank*.log") if failed else {},
                evidence=_ends_of(launch_dir, "evidence-*.json") if failed else {},
            )

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


def _failed(error: LaunchError, start_s: float) -> LaunchOutcome:
    return LaunchOutcome(
        status="failed",
        record=None,
        error=error,
        notes=(),
        start_s=start_s,
        wall_s=time.monotonic() - start_s,
    )


def _unheard(progress: Progress) -> None:
    """The first node tells of the launch."""
