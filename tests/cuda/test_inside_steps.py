"""What a device does inside a step: phases, hidden waits, recompiles, updates in other threads."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader, TensorDataset
from virtual import VirtualCuda
from virtual_job import Rank, Run

from sfbench.analyze.phases import phases
from sfbench.common.schema import LADDER, RUNGS, STEP_COLUMNS
from sfbench.probe.hooks import device_marks
from sfbench.probe.stop import Refused

PHASED = ("cached", "unsynced", "solo")


class Wrapped(torch.nn.Module):
    """In DDP's place: its forward launches 30 ms of work within a third of a millisecond."""

    def __init__(self, cuda: VirtualCuda) -> None:
        super().__init__()
        self._cuda = cuda
        self.inner = torch.nn.Linear(3, 1)

    def forward(self, inputs: torch.Tensor) -> Any:
        self._cuda.host(0.0003)
        self._cuda.launch(0.030)
        return self.inner(inputs)


@pytest.fixture
def phased(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> Rank:
    """A job whose forward and update launch their own work: 30, 60 and 10 ms."""
    cuda = rank.cuda

    class Sgd(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            cuda.host(0.0001)
            cuda.launch(0.010)
            return super().step(closure)

    # torch hooks ``step`` of each class that has been made: an update of the one above is two calls
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1e-3)
    monkeypatch.setattr(device_marks, "DistributedDataParallel", Wrapped)
    rank.model = lambda: Wrapped(cuda)
    rank.optimizer = lambda parameters: Sgd(parameters, 1e-3)
    rank.cost = replace(rank.cost, fetch=0.000_02, forward=0.0, update=0.0)
    rank.wanting(rungs=LADDER)
    return rank


def frame(run: Run) -> pd.DataFrame:
    """As the collecting stage makes it of one launch."""
    steps = pd.DataFrame(run.table, columns=list(STEP_COLUMNS)).assign(launch=0, devices=1)
    steps["warmup"] = steps["block"] < 0
    steps["rung"] = [RUNGS[int(r)] for r in steps["rung"]]
    return steps.astype({"measured": bool, "rank": int, "turn": int})


@pytest.mark.parametrize("rung", PHASED)
def test_phases_are_the_devices_times(phased: Rank, rung: Any) -> None:
    found = phases(frame(phased.run()), rung)
    assert found.forward_s == pytest.approx([0.030], abs=1e-6)
    assert found.backward_s == pytest.approx([0.060], abs=1e-5)
    assert found.update_s == pytest.approx([0.010], abs=1e-6)
    assert found.step_s == pytest.approx([0.100], abs=1e-6)


def test_a_step_whose_update_holds_forward_and_backward_has_no_phases(phased: Rank) -> None:
    # GIVEN an update that calls its closure, as L-BFGS does
    def step(model: Any, optimizer: Any, inputs: torch.Tensor) -> None:
        def closure() -> Any:
            loss = model(inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            phased.cuda.launch(0.060)
            return loss

        optimizer.step(closure)
        phased.cuda.item()

    phased.step = step  # type: ignore[method-assign]
    run = phased.run()
    # THEN an update of 100 ms with a forward of 30 ms inside is none of the two
    assert len(run.column("step_s", "solo"))
    for rung in PHASED:
        found = phases(frame(run), rung)  # type: ignore[arg-type]
        assert np.isnan([found.forward_s, found.backward_s, found.update_s]).all()


def test_no_measured_step_carries_a_mark_of_its_phases(phased: Rank) -> None:
    session, seen, before = phased.start(), [0], [False]
    measured: list[int] = []
    marked: list[int] = []

    def count(step: int) -> None:
        taken, seen[0] = phased.cuda.events - seen[0], phased.cuda.events
        assert session.inside is not None
        phases_on, before[0] = before[0], session.inside.phases
        # The first and the last step of a block take the marks of a border as well.
        if phases_on:
            marked.append(taken)
        elif (
            session.measuring_began
            and session.updates.left[0] not in (session.command.steps, session.command.steps - 1, 0)
            and not session.unmeasured
        ):
            measured.append(taken)

    phased.after_step = count
    run = phased.run()
    # THEN one mark a step; four more where phases are marked
    assert set(measured) == {1}
    assert max(marked) == 5
    assert np.isnan(run.column("forward_s")).all()


@pytest.mark.parametrize("per_step", [1, 2])
def test_a_wait_that_queued_kernels_hide_is_none(rank: Rank, per_step: int) -> None:
    # GIVEN 20 ms of fetching in each step of 100 ms on the device or more, the host ahead
    rank.batches_per_step = per_step
    rank.cost = replace(rank.cost, fetch=0.020)
    run = rank.run()
    assert run.column("data_wait_s") == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("per_step", [1, 2])
def test_a_wait_of_an_idle_device_is_one(rank: Rank, per_step: int) -> None:
    # GIVEN 300 ms of fetching a batch, of which the device's work hides what it lasts
    rank.batches_per_step = per_step
    rank.cost = replace(rank.cost, fetch=0.300)
    run = rank.run()
    device_s = rank.cost.device + (per_step - 1) * (rank.cost.forward + rank.cost.backward)
    idle_s = run.column("step_s") - device_s
    assert run.column("data_wait_s") == pytest.approx(idle_s, abs=0.012)
    assert idle_s.min() > 0.15


def test_a_short_wait_takes_no_mark(rank: Rank) -> None:
    rank.cost = replace(rank.cost, fetch=0.000_02)
    run = rank.run()
    steps = len(run.table)
    assert rank.cuda.events < 1.2 * steps


def test_blocks_that_compile_anew_are_left_out(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a recompile of two seconds in the third block's measured steps
    session, hit = rank.start(), []

    def compiles(step: int) -> None:
        if session.command.block == 2 and not session.unmeasured and not hit:
            hit.append(step)
            counters["frames"]["total"] += 1
            rank.cuda.host(2.0)

    rank.after_step = compiles
    run = rank.run()
    # THEN
    assert len(hit) == 1
    assert run.column("step_s") == pytest.approx(rank.cost.device, abs=1e-6)
    assert 2 not in run.column("block")
    assert run.column("step_s", measured=False).max() > 1.8
    assert any("compiled anew" in note for note in run.record.notes)


def test_compiling_before_the_measured_steps_leaves_nothing_out(rank: Rank) -> None:
    session = rank.start()

    def compiles(step: int) -> None:
        if session.unmeasured and session.updates.left[0] > 1:
            counters["frames"]["total"] += 1

    rank.after_step = compiles
    run = rank.run()
    assert run.record.notes == ()
    assert len(np.unique(run.column("block"))) > 3


def test_compiling_for_ever_is_refused_by_kind(rank: Rank) -> None:
    def compiles(step: int) -> None:
        counters["frames"]["total"] += 1

    rank.after_step = compiles
    with pytest.raises(Refused, match="compiles anew") as caught:
        rank.run()
    assert caught.value.kind == "unsteady"


def test_validating_in_every_step_is_refused_by_kind(rank: Rank) -> None:
    held = torch.nn.Linear(3, 1)
    data = DataLoader(TensorDataset(torch.zeros(4, 3)), 4)

    def validate(step: int) -> None:
        with torch.no_grad():
            for (rows,) in data:
                held(rows)
                rank.cuda.host(0.001)
                rank.cuda.launch(0.050, rank.device)

    rank.after_step = validate
    with pytest.raises(Refused, match="validation or a save") as caught:
        rank.run()
    assert caught.value.kind == "unsteady"


def test_an_optimizer_that_steps_inside_backward_is_seen(rank: Rank) -> None:
    # GIVEN autograd's own thread, in which a hook steps the optimizer of each parameter
    cuda, cost = rank.cuda, rank.cost
    model = torch.nn.Linear(3, 1)
    rank.start()
    optimizers = [torch.optim.SGD([p], 1e-3) for p in model.parameters()]
    threads: set[int] = set()

    def update(optimizer: Any) -> None:
        threads.add(threading.get_ident())
        cuda.launch(cost.update / 2, rank.device)
        optimizer.step()
        optimizer.zero_grad()

    def in_a_thread(optimizer: Any) -> Any:
        def hook(_: torch.Tensor) -> None:
            thread = threading.Thread(target=update, args=(optimizer,))
            thread.start()
            thread.join()

        return hook

    for parameter, optimizer in zip(model.parameters(), optimizers, strict=True):
        parameter.register_post_accumulate_grad_hook(in_a_thread(optimizer))

    def body() -> None:
        source = rank.batches(TensorRows())
        for inputs in source:
            cuda.host(cost.host)
            cuda.launch(cost.forward + cost.backward, rank.device)
            model(inputs).square().mean().backward()
            cuda.now = max(cuda.now, cuda.streams[rank.device].free_at - 0.2)

    run = rank.run(body)
    assert threading.get_ident() not in threads
    assert run.column("step_s") == pytest.approx(cost.device, abs=1e-6)
    assert run.column("samples") == pytest.approx(rank.batch)


class TensorRows(torch.utils.data.Dataset[torch.Tensor]):
    """Rows that cost nothing."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), float(index))
