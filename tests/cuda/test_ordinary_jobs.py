"""Shapes of jobs that are common on GPUs: their step is what the device takes for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from virtual_job import Rank, Samples


def test_waiting_for_the_device_in_each_step_is_part_of_it(rank: Rank) -> None:
    # GIVEN torch.cuda.synchronize() after each step: nothing overlaps any more
    rank.device = 1
    ends: list[float] = []

    def wait(step: int) -> None:
        torch.cuda.synchronize(torch.device("cuda", 1))
        ends.append(rank.cuda.now)

    rank.after_step = wait
    run = rank.run()
    # THEN a step takes what the host's clock says as well
    period_s = float(np.median(np.diff(ends)))
    assert period_s > rank.cost.device + 0.002
    assert run.column("step_s") == pytest.approx(period_s, abs=1e-6)


def test_steps_that_a_scaler_skips_are_steps(rank: Rank) -> None:
    # GIVEN gradients without a value in every seventh step
    scaler, count = torch.amp.GradScaler("cpu", init_scale=16.0), [0]
    cuda, cost = rank.cuda, rank.cost
    model = rank.model()
    session = rank.start()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def body() -> None:
        for inputs in rank.batches(rows(rank)):
            count[0] += 1
            cuda.host(cost.host)
            cuda.launch(cost.forward + cost.backward, rank.device)
            scaler.scale(model(inputs).square().mean()).backward()
            if count[0] % 7 == 0:
                next(iter(model.parameters())).grad.fill_(float("inf"))  # type: ignore[union-attr]
            cuda.launch(cost.update, rank.device)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            cuda.now = max(cuda.now, cuda.streams[rank.device].free_at - 0.2)

    run = rank.run(body)
    assert len(session.updates.skips) >= count[0] // 7 - 1
    assert run.column("step_s") == pytest.approx(cost.device, abs=1e-6)
    assert run.column("samples") == pytest.approx(rank.batch)


@pytest.mark.parametrize("devices", [(0, 0), (0, 1), (3, 2)])
def test_two_optimizers_are_one_step_be_they_on_two_devices(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, devices: tuple[int, int]
) -> None:
    # GIVEN two models that are trained in turn, 60 and 40 ms, and wait for each other
    cuda, models = rank.cuda, [torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)]
    homes = {
        id(p): torch.device("cuda", device)
        for model, device in zip(models, devices, strict=True)
        for p in model.parameters()
    }

    def home(parameters: Iterable[Any], kind: str) -> torch.device:
        return next(homes[id(p)] for p in parameters)

    for module in ("clock", "facts_of_rank"):
        monkeypatch.setattr(f"sfbench.probe.{module}.home_of", home)
    rank.start()
    optimizers = [torch.optim.SGD(model.parameters(), 1e-3) for model in models]

    def body() -> None:
        for inputs in rank.batches(rows(rank)):
            for model, optimizer, device, took_s in zip(
                models, optimizers, devices, (0.060, 0.040), strict=True
            ):
                cuda.host(0.005)
                start_after(rank, devices)
                cuda.launch(took_s, device)
                optimizer.zero_grad()
                model(inputs).square().mean().backward()
                optimizer.step()
            cuda.now = max(cuda.now, cuda.streams[devices[1]].free_at - 0.2)

    run = rank.run(body)
    assert run.column("step_s") == pytest.approx(0.100, abs=1e-6)
    assert run.column("samples") == pytest.approx(rank.batch)


def test_training_that_goes_on_with_a_new_optimizer_on_another_device_is_followed(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN parameters that move to device 4 after 40 steps, with a new optimizer
    cuda, cost, model = rank.cuda, rank.cost, torch.nn.Linear(3, 1)
    at = [0]
    for module in ("clock", "facts_of_rank"):
        monkeypatch.setattr(
            f"sfbench.probe.{module}.home_of", lambda *_: torch.device("cuda", at[0])
        )
    rank.start()

    def body() -> None:
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        for step, inputs in enumerate(rank.batches(rows(rank))):
            if step == 40:
                cuda.synchronize(0)
                at[0], optimizer = 4, torch.optim.SGD(model.parameters(), 1e-3)
            cuda.host(cost.host)
            cuda.launch(cost.device, at[0])
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            cuda.now = max(cuda.now, cuda.streams[at[0]].free_at - 0.2)

    measured = rank.run(body).column("step_s")
    # THEN all but the few steps around the move are the device's
    assert np.median(measured) == pytest.approx(cost.device, abs=1e-6)
    assert measured[-20:] == pytest.approx(cost.device, abs=1e-6)


def start_after(rank: Rank, devices: Iterable[int]) -> None:
    """The next work begins when all devices are done: ``Stream.wait_event``."""
    streams = [rank.cuda.streams[device] for device in devices]
    free_at = max(stream.free_at for stream in streams)
    for stream in streams:
        stream.free_at = free_at


def rows(rank: Rank) -> Samples:
    """Samples that cost nothing."""
    return Samples(rank.cuda, 64 * rank.batch, 0.0)


@pytest.mark.parametrize("wrap", [torch.no_grad, torch.inference_mode])
def test_an_ema_copy_beside_the_model_is_no_part_of_validation(
    rank: Rank, wrap: Callable[[], Any]
) -> None:
    # GIVEN weights averaged after each step, on the same stream
    shadow = torch.nn.Linear(3, 1)

    def average(step: int) -> None:
        with wrap():
            rank.cuda.launch(0.002, rank.device)
            for parameter in shadow.parameters():
                parameter.clone()

    rank.after_step = average
    run = rank.run()
    assert run.column("step_s") == pytest.approx(rank.cost.device + 0.002, abs=1e-6)
