"""Before a rung that does not load, workers come to rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sfbench.probe.hooks.loader_hooks import LoaderHooks
from sfbench.probe.hooks.pulse import Pulse
from sfbench.probe.replaying.replay import RungReplay


class Queue:
    """Holds one more batch each time it is looked at."""

    def __init__(self, first: int) -> None:
        self._next = first

    def qsize(self) -> int:
        self._next += 1
        return self._next - 1


def hooks_with(**iterator: Any) -> LoaderHooks:
    hooks = LoaderHooks(Pulse([0.0] * 10), RungReplay(lambda key: True))
    hooks.iterators["k"] = SimpleNamespace(**iterator)
    return hooks


def test_settling_waits_for_all_that_was_asked_for() -> None:
    # GIVEN 4 batches asked for, of which 1 is there
    queue = Queue(1)
    hooks = hooks_with(_tasks_outstanding=4, _worker_result_queue=queue, _data_queue=queue)
    # WHEN it settles
    hooks.settle("k", limit_s=60.0)
    # THEN it has looked until there were 4
    assert queue.qsize() == 5


def test_batches_that_wait_to_be_pinned_count_too() -> None:
    made, pinned = Queue(1), Queue(3)
    hooks = hooks_with(_tasks_outstanding=4, _worker_result_queue=made, _data_queue=pinned)
    hooks.settle("k", limit_s=60.0)
    assert (made.qsize(), pinned.qsize()) == (2, 4)


def test_settling_has_an_end() -> None:
    queue = Queue(-(10**9))
    hooks = hooks_with(_tasks_outstanding=4, _worker_result_queue=queue, _data_queue=queue)
    hooks.settle("k", limit_s=0.0)
    assert queue.qsize() < 0


def test_a_loader_without_workers_is_at_rest() -> None:
    hooks_with().settle("k", limit_s=60.0)
    hooks_with().settle("another", limit_s=60.0)
