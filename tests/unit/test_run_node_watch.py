"""A failure on one node reaches the others, also the launcher's own and while torch waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sfbench.common.schema import RankJob
from sfbench.launch.blame import launcher_failed
from sfbench.launch.local import LocalLauncher
from sfbench.launch.meeting import Meeting
from sfbench.launch.node_messages import LaunchOrder, NodeEnd, from_text, to_text
from sfbench.launch.outcome import LaunchError, LaunchOutcome, failure_of
from sfbench.plan.machine import Machine
from sfbench.plan.sweep_plan import NodeJob, SweepPlan, Target
from sfbench.run import node_watch, nodes
from sfbench.run.following_node import FollowingNode

KEY = "launch/run/failure"
PLAN = SweepPlan(
    target=Target(name="t", script=Path("/t.py"), is_workload=False), devices=(1, 2), name="t",
    output=Path("results"), nnodes=2, node_rank=1, rdzv_endpoint="a:1", timeout_s=300.0,
)  # fmt: skip
MACHINE = Machine(cores=(0,), quota=None, gpus=())
ORDER = LaunchOrder(run_id="run", spread=(1, 1), timeout_s=300.0, log_name="round1-devices2")
ERROR = LaunchError(
    kind="exit", rank=1, message="elsewhere", last_lines=(), log=None, script_fault=False
)


class Board(Meeting):
    """A meeting without a network."""

    def __init__(self) -> None:
        super().__init__(text="a:1", nnodes=2, node_rank=1, timeout_s=300.0)
        self.keys: dict[str, str] = {}

    def put(self, key: str, text: str) -> None:
        self.keys[key] = text

    def put_first(self, key: str, text: str) -> None:
        self.keys.setdefault(key, text)

    def has(self, key: str) -> bool:
        return key in self.keys

    def get(self, key: str) -> bytes:
        return self.keys[key].encode()


class Broken(LocalLauncher):
    """It cannot start ranks; or, of two nodes, waits for the other."""

    def __init__(self, outcome: LaunchOutcome | None) -> None:
        self._outcome = outcome

    def run(
        self, node_job: NodeJob, on_progress: object, while_waiting: Callable[[], None] = print
    ) -> LaunchOutcome:
        for _ in range(1000):
            if self._outcome is not None:
                return self._outcome
            while_waiting()
        raise AssertionError("nobody ended it")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_watch, "_END_S", 0.0)


def followed(board: Board, launcher: LocalLauncher, folder: Path) -> NodeEnd:
    board.put("order/0", to_text(ORDER))
    board.put("order/1", to_text(LaunchOrder(over="")))
    FollowingNode(PLAN, MACHINE, launcher, board, folder).serve(lambda _: None)
    return from_text(NodeEnd, board.get("end/0/1"))


def job(folder: Path) -> NodeJob:
    rank_job = RankJob(script="/t.py", launch_dir=str(folder))
    return NodeJob(
        job=rank_job, nproc=1, log_dir=folder, timeout_s=300.0, nnodes=2, run_id="run",
        spread=(1, 1),
    )  # fmt: skip


def test_a_follower_tells_of_its_launcher_s_failure(tmp_path: Path) -> None:
    board = Board()

    end = followed(board, Broken(launcher_failed("no process could be started", 0.0)), tmp_path)

    assert end.status == "failed"
    told = failure_of(board.get(KEY))
    assert told.kind == "launcher"
    assert told.message.startswith("no process could be started (On node 1, ")


def test_a_follower_that_waits_inside_torch_ends_with_the_first(tmp_path: Path) -> None:
    board = Board()
    node_watch.tell_failure(board, "run", ERROR)

    end = followed(board, Broken(None), tmp_path)

    assert end.error == ERROR


def test_the_first_node_tells_of_its_launcher_s_failure(tmp_path: Path) -> None:
    board = Board()
    board.put("end/0/1", to_text(NodeEnd(status="failed", error=ERROR, logs={}, evidence={})))
    launcher = Broken(launcher_failed("no process could be started", 0.0))

    outcome = nodes._FirstNode(PLAN, MACHINE, launcher, board).run(job(tmp_path), lambda _: None)

    assert outcome.status == "failed"
    assert failure_of(board.get(KEY)) == outcome.error


def test_the_first_node_does_not_wait_for_a_node_that_failed(tmp_path: Path) -> None:
    board = Board()
    board.put("end/0/1", to_text(NodeEnd(status="failed", error=ERROR, logs={}, evidence={})))
    node_watch.tell_failure(board, "run", ERROR)

    first = nodes._FirstNode(PLAN, MACHINE, Broken(None), board)

    assert first.run(job(tmp_path), lambda _: None).error == ERROR


def test_a_failure_after_the_record_is_a_note(tmp_path: Path) -> None:
    board = Board()
    board.put("end/0/1", to_text(NodeEnd(status="failed", error=ERROR, logs={}, evidence={})))
    good = replace(launcher_failed("", 0.0), status="ok", error=None)

    outcome = nodes._FirstNode(PLAN, MACHINE, Broken(good), board).run(
        job(tmp_path), lambda _: None
    )

    assert outcome.status == "ok"
    assert outcome.notes == ("node 1 failed after all was measured: elsewhere",)
