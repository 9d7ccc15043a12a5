"""Where and how finely steps are timed on an accelerator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from virtual import Stream, VirtualCuda
from virtual_job import Rank

from sfbench.probe import script_runner
from sfbench.probe.clock import clock_for
from sfbench.probe.stop import Refused


def test_a_step_takes_as_long_as_on_the_device_of_its_rank(rank: Rank) -> None:
    # GIVEN a model on device 3, and a script that never calls set_device
    rank.device = 3
    # WHEN
    run = rank.run()
    # THEN
    assert run.column("step_s") == pytest.approx(rank.cost.device, abs=1e-6)
    assert rank.cuda.contexts == {3}  # no other device was opened
    assert (run.record.ranks[0].gpu_uuid, run.record.ranks[0].memory_bytes) == (
        "uuid-3", rank.cuda.devices[3].total,
    )  # fmt: skip


def test_nothing_is_touched_before_the_first_update(rank: Rank) -> None:
    rank.start()
    seen: list[set[int]] = []
    rank.before_backward = lambda: seen.append(rank.cuda.contexts - {rank.device})
    rank.device = 5
    # WHEN a batch is fetched and a forward made, with device 0 still the current one
    run = rank.run()
    # THEN
    assert set().union(*seen) == set()
    assert len(run.column("step_s")) > 0


def test_another_current_device_in_mid_run_changes_nothing(rank: Rank) -> None:
    rank.device = 1

    def visit(step: int) -> None:
        rank.cuda.current = step % 8

    rank.after_step = visit
    assert rank.run().column("step_s") == pytest.approx(rank.cost.device, abs=1e-6)


def test_marks_stand_on_the_stream_that_steps(rank: Rank) -> None:
    # GIVEN a script that trains on a stream of its own
    with rank.cuda.on_stream(Stream(0)):
        run = rank.run()
    assert run.column("step_s") == pytest.approx(rank.cost.device, abs=1e-6)


def test_the_device_is_waited_for_at_borders_only(rank: Rank) -> None:
    run = rank.run()
    blocks = len(np.unique(run.column("block")))
    assert rank.cuda.waits < 4 * (blocks + 4)
    assert len(run.column("step_s")) > 10 * blocks


@pytest.mark.parametrize("age_s", [0, 300, 7200, 86400])
def test_a_constant_step_stays_constant_late_in_a_run(
    cuda: VirtualCuda, monkeypatch: pytest.MonkeyPatch, age_s: float
) -> None:
    # GIVEN a clock as old as that
    home = torch.device("cuda", 0)
    monkeypatch.setattr("sfbench.probe.clock.home_of", lambda parameters, kind: home)
    clock = clock_for("cuda")
    clock.follow([])
    clock.mark()
    cuda.host(age_s)
    # WHEN
    marks = []
    for _ in range(65):
        marks.append(clock.mark())
        cuda.host(0.005_123_4)
    times = clock.resolve(marks)
    # THEN
    assert np.diff(times) == pytest.approx(0.005_123_4, abs=2e-9 + 1e-16 * age_s**2)
    assert np.std(np.diff(times)) < 2e-8
    assert times[0] == pytest.approx(age_s, abs=1e-6)


def test_marks_on_two_devices_are_as_far_apart_as_the_host_saw_them(
    cuda: VirtualCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a script that goes on on another device, for which no driver has a difference
    clock, marks = clock_for("cuda"), []
    marks.append(clock.mark())
    for index in (0, 3):
        home = torch.device("cuda", index)
        monkeypatch.setattr("sfbench.probe.clock.home_of", lambda *_, home=home: home)
        cuda.host(0.25)
        clock.follow([])
        marks.append(clock.mark())
    assert np.diff(clock.resolve(marks)) == pytest.approx([0.25, 0.25])


def test_a_captured_update_is_refused_by_kind(
    cuda: VirtualCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = torch.device("cuda", 0)
    monkeypatch.setattr("sfbench.probe.clock.home_of", lambda parameters, kind: home)
    clock = clock_for("cuda")
    clock.follow([])
    cuda.capturing = True
    with pytest.raises(Refused, match="captured into a graph") as caught:
        clock.mark()
    assert caught.value.kind == "device-graph"


def test_a_refusal_is_told_though_the_capture_complains_on_its_way(rank: Rank) -> None:
    # GIVEN a graph that cannot be ended any more, and says so
    session = rank.start()
    try:
        try:
            raise Refused("device-graph", "captured into a graph")
        finally:
            raise RuntimeError("CUDA error: operation failed due to a previous error")
    except RuntimeError as error:
        with pytest.raises(Refused) as caught:
            script_runner._raised(session, 0, error)
    finally:
        session.remove()
    assert caught.value.kind == "device-graph"
