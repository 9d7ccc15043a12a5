"""Constructors get other arguments where a trial asks for them, and nowhere else."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from sfbench.probe.hooks.change_hooks import ChangeHooks
from sfbench.probe.hooks.taps import Taps
from sfbench.protocol.changes import Changes

HERE, ELSEWHERE = "train.py:1", "train.py:2"
DATA: Any = torch.arange(64.0)


@pytest.fixture
def taps() -> Iterator[Taps]:
    taps = Taps()
    yield taps
    taps.restore()


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def install(taps: Taps, changes: Changes, line: str = HERE) -> None:
    ChangeHooks(changes, lambda: line).install(taps)


WORKERS = Changes(loader=(("num_workers", 2), ("persistent_workers", True)), loader_lines=(HERE,))


def test_a_training_loader_gets_its_workers(taps: Taps) -> None:
    install(taps, WORKERS)

    loader = DataLoader(DATA, 4, num_workers=0, pin_memory=False)

    assert (loader.num_workers, loader.persistent_workers) == (2, True)
    assert (loader.batch_size, loader.prefetch_factor) == (4, 2)


def test_a_loader_of_another_line_stays(taps: Taps) -> None:
    install(taps, WORKERS, ELSEWHERE)

    assert DataLoader(DATA, num_workers=0).num_workers == 0


def test_arguments_that_need_workers_go_with_them(taps: Taps) -> None:
    install(taps, Changes(loader=(("num_workers", 0),), loader_lines=(HERE,)))

    loader = DataLoader(DATA, num_workers=3, prefetch_factor=4, persistent_workers=True)

    assert (loader.num_workers, loader.prefetch_factor) == (0, None)


def test_a_loader_of_a_class_of_its_own_is_one_too(taps: Taps) -> None:
    class Mine(DataLoader[Any]):
        def __init__(self, data: Any) -> None:
            super().__init__(data, batch_size=2)

    install(taps, WORKERS)

    assert Mine(DATA).num_workers == 2


def test_larger_batches_whoever_makes_them(taps: Taps) -> None:
    install(taps, Changes(batch_factor=2, loader_lines=(HERE,)))
    sampler = BatchSampler(SequentialSampler(DATA), 4, drop_last=False)

    assert DataLoader(DATA, batch_size=4).batch_size == 8
    assert len(next(iter(DataLoader(DATA, batch_sampler=sampler)))) == 8


def test_the_constructors_are_the_same_again() -> None:
    taps, before = Taps(), DataLoader.__init__
    install(taps, WORKERS)

    taps.restore()

    assert DataLoader.__init__ is before


@pytest.mark.usefixtures("group")
def test_a_model_is_wrapped_otherwise(taps: Taps) -> None:
    install(taps, Changes(model=(("bucket_cap_mb", 5), ("find_unused_parameters", False))))

    model = DistributedDataParallel(nn.Linear(2, 2), find_unused_parameters=True)

    assert model.bucket_bytes_cap == 5 * 2**20
    assert not model.find_unused_parameters


@pytest.mark.usefixtures("group")
def test_gradients_are_asked_to_go_as_bf16(taps: Taps, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        DistributedDataParallel, "register_comm_hook", lambda *given: asked.append(given[1:])
    )
    install(taps, Changes(compress=True))

    model = DistributedDataParallel(nn.Linear(2, 1))

    assert asked == [(model.process_group, bf16_compress_hook)]


@pytest.mark.usefixtures("group")
def test_only_the_last_of_several_passes_averages(taps: Taps) -> None:
    averaged: list[bool] = []

    class Asked(nn.Linear):
        def forward(self, x: Any) -> Any:
            averaged.append(bool(model.require_backward_grad_sync))
            return super().forward(x)

    install(taps, Changes(sync_every=3))
    model = DistributedDataParallel(Asked(2, 1))

    for _ in range(4):
        model(torch.ones(1, 2)).sum().backward()
    with torch.no_grad():
        model(torch.ones(1, 2))
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()

    assert averaged == [False, False, True, False, True, False, True]


@pytest.mark.usefixtures("group")
def test_what_there_is_at_the_first_step_is_left_out_of_collections(taps: Taps) -> None:
    install(taps, Changes(freeze=True))
    model = DistributedDataParallel(nn.Linear(2, 2))
    try:
        model(torch.ones(1, 2))
        frozen = gc.get_freeze_count()
        model(torch.ones(1, 2))
    finally:
        gc.unfreeze()

    assert frozen > 1000
