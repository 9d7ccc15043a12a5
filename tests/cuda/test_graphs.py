"""Graphs that hold collectives: replays meet other ranks, and no hook sees them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from test_out_of_memory import Together, ran
from virtual_job import Rank

from sfbench.common.schema import LADDER
from sfbench.probe.hooks import graphs
from sfbench.probe.hooks.graphs import GraphHooks
from sfbench.probe.hooks.taps import Taps
from sfbench.probe.stop import Refused

X = torch.ones(2)


class Graph:
    """As ``torch.cuda.CUDAGraph``."""

    def capture_begin(self, pool: Any = None) -> None:
        """What is launched from here on is kept."""

    def capture_end(self) -> None:
        """Up to here."""


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(CUDAGraph=Graph))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("meets", [True, False])
@pytest.mark.usefixtures("one_rank")
def test_a_capture_in_which_ranks_meet_is_seen(meets: bool) -> None:
    taps, hooks = Taps(), GraphHooks(lambda: False)
    hooks.install(taps)
    dist.all_reduce(X.clone())
    graph = Graph()
    graph.capture_begin(pool=None)
    if meets:
        operators, name = torch.ops._c10d_functional, dist.group.WORLD.group_name
        operators.wait_tensor(operators.all_reduce(X, "sum", name))
    graph.capture_end()
    taps.restore()
    assert hooks.captured == meets


def test_a_capture_while_ranks_run_apart_is_refused_by_kind() -> None:
    taps, hooks = Taps(), GraphHooks(lambda: True)
    assert "CUDAGraph" in dict(graphs._KINDS).values()
    hooks.install(taps)
    try:
        with pytest.raises(Refused, match="within the first steps") as caught:
            torch.cuda.CUDAGraph.capture_begin(None)  # type: ignore[arg-type]
    finally:
        taps.restore()
    assert caught.value.kind == "device-graph"


def test_where_replays_meet_no_rank_runs_apart(rank: Rank) -> None:
    # GIVEN a second rank, and a graph made in warmup
    rank.wanting(rungs=LADDER)
    session = rank.start()

    def capture(step: int) -> None:
        if step == 8:
            session.world_size, session.control = 2, Together()  # type: ignore[assignment]
            session.graphs.captured = True

    rank.after_step = capture
    run = rank.run()
    # THEN
    assert ran(run) == {"train", "cached"}
    assert set(run.record.unavailable) == {"unsynced", "solo"}
    assert "replayed from a graph" in run.record.unavailable["solo"]


def test_ranks_that_meet_where_they_should_not_never_run_alone(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a second rank, and collectives that no hook answers, in each backward
    rank.wanting(rungs=LADDER)
    session, met = rank.start(), [0]
    monkeypatch.setattr("sfbench.probe.rungs_left.meetings", lambda: met[0])

    def meet() -> None:
        met[0] += 1

    def another(step: int) -> None:
        if step == 8:
            session.world_size, session.control = 2, Together()  # type: ignore[assignment]
            session._left._proven = False

    rank.before_backward, rank.after_step = meet, another
    run = rank.run()
    # THEN
    assert ran(run) == {"train", "cached"}
    assert "cannot be answered on the rank" in run.record.unavailable["solo"]
    assert len(run.column("step_s", "solo", measured=False)) == 0


def test_alone_a_replay_meets_nobody(rank: Rank) -> None:
    rank.wanting(rungs=LADDER)
    rank.start().graphs.captured = True
    assert ran(rank.run()) >= set(LADDER)
