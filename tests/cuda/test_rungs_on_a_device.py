"""What the session does on a virtual GPU: validation, phases, room for the weights, full queues."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from virtual import GIB
from virtual_job import Cost, Rank

from sfbench.common.schema import LADDER, RUNGS
from sfbench.probe.replaying import own_memory


def test_a_validation_inside_the_loop_is_no_part_of_any_measured_step(rank: Rank) -> None:
    # GIVEN 50 ms of validation every 10 steps, the host three steps ahead
    held = torch.nn.Linear(3, 1)
    from torch.utils.data import DataLoader, TensorDataset

    data = DataLoader(TensorDataset(torch.zeros(4, 3)), 4)

    def validate(step: int) -> None:
        if step % 10 == 9:
            with torch.no_grad():
                for (rows,) in data:
                    held(rows)
                    rank.cuda.launch(0.050, rank.device)
            rank.cuda.item(rank.device)

    rank.after_step = validate
    # WHEN
    run = rank.run()
    # THEN
    measured = run.column("step_s")
    assert measured == pytest.approx(rank.cost.device, abs=1e-6)
    assert (run.column("step_s", measured=False) > 0).all()
    assert (run.column("other_s", measured=False) > 0).any()


class Slow:
    """Takes the host 50 ms to be written."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank

    def __reduce__(self) -> Any:
        self._rank.cuda.host(0.050)
        return str, ()


def test_a_step_that_held_a_save_is_not_measured(rank: Rank) -> None:
    def save(step: int) -> None:
        if step % 10 == 9:
            torch.save({"state": Slow(rank)}, io.BytesIO())

    rank.after_step = save
    run = rank.run()
    assert (run.column("other_s") == 0).all()
    assert (run.column("other_s", measured=False) > 0.04).any()


def test_launch_times_are_not_told_as_phases(rank: Rank) -> None:
    run = rank.run()
    assert np.isnan(run.column("forward_s")).all()
    assert np.isnan(run.column("update_s")).all()


@pytest.mark.parametrize("where", ["device", "host", "nowhere"])
def test_the_weights_copy_goes_where_there_is_room(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    # GIVEN a job that leaves no room on its device, or none anywhere
    rank.wanting(rungs=LADDER)
    if where != "device":
        rank.cuda.devices[0].others = 80 * GIB
    if where == "nowhere":
        monkeypatch.setattr(own_memory, "host_free_bytes", lambda: 0)
    made: list[bool] = []
    snapshot = own_memory.Snapshot

    def watched(*args: object, on_host: bool) -> object:
        made.append(on_host)
        return snapshot(*args, on_host=on_host)  # type: ignore[arg-type]

    monkeypatch.setattr(own_memory, "Snapshot", watched)
    run = rank.run()
    # THEN
    assert set(made) == {"device": {False}, "host": {True}, "nowhere": set()}[where]
    left_out = run.record.unavailable
    assert set(left_out) == ({"unsynced", "solo"} if where == "nowhere" else set())
    assert all("memory" in reason for reason in left_out.values())
    assert len(run.column("step_s", "cached")) > 0
    assert (len(run.column("step_s", "solo")) > 0) == (where != "nowhere")


def test_no_block_begins_with_an_empty_queue(rank: Rank) -> None:
    rank.wanting(rungs=LADDER)
    run = rank.run()
    for rung in LADDER:
        assert run.column("step_s", rung) == pytest.approx(rank.cost.device, abs=1e-6), rung


def test_a_clock_has_come_back_before_a_block_is_measured(rank: Rank) -> None:
    # GIVEN steps of 10 ms, that take 15 ms in the first 0.15 s of each rung: the device had rested
    rank.cost = Cost(fetch=1e-4, host=1e-3, forward=3e-3, backward=6e-3, update=1e-3)
    rank.wanting(rungs=LADDER, seconds=6.0)
    session, since = rank.start(), [0.0, -1.0]

    def slow() -> None:
        if session.command.rung != since[1]:
            since[:] = rank.cuda.now, session.command.rung
        if rank.cuda.now - since[0] < 0.15:
            rank.cuda.launch(0.005, rank.device)

    rank.before_backward = slow
    run = rank.run()
    for rung in LADDER:
        assert run.column("step_s", rung) == pytest.approx(0.010, abs=1e-6), rung
    assert run.column("step_s", "solo", measured=False).max() > 0.014


def test_clocks_are_told_rung_by_rung(rank: Rank) -> None:
    # GIVEN a device, not the current one, that clocks lower where the other ranks run as well
    rank.wanting(rungs=LADDER)
    rank.device = 2
    session = rank.start()
    mhz = {"train": 1500, "cached": 1600, "unsynced": 1700}

    def clock() -> None:
        rung = RUNGS[session.command.rung]
        rank.cuda.devices[2].clock_mhz = mhz.get(rung, 1980)

    rank.before_backward = clock
    run = rank.run()
    # THEN
    (load,) = run.record.loads
    told = {one.rung: one.clock_hz for one in load.rungs}
    assert told == pytest.approx({
        "train": 1.5e9, "cached": 1.6e9, "unsynced": 1.7e9, "solo": 1.98e9, "half": 1.98e9,
        "double": 1.98e9,
    })  # fmt: skip
    assert rank.cuda.contexts == {2}


def test_a_clock_that_nobody_tells_is_none(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(device: object) -> int:
        raise ModuleNotFoundError("pynvml does not seem to be installed")

    monkeypatch.setattr(torch.cuda, "clock_rate", no_library)
    rank.wanting(rungs=LADDER)
    run = rank.run()
    assert {one.clock_hz for one in run.record.loads[0].rungs} == {0.0}
    assert len(run.column("step_s", "solo")) > 0
