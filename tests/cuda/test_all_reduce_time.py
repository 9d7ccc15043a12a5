"""All-reduce is timed by the device's clock, warm, and after all else is safe."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from virtual import GIB, OutOfMemory, VirtualCuda
from virtual_job import Rank

from sfbench.probe import allreduce, closing
from sfbench.probe.allreduce import time_all_reduce
from sfbench.probe.device import Accelerator
from sfbench.probe.probe_group import Control
from sfbench.protocol import record_file

MIB = 2**20
CPU = torch.device("cpu")
LAUNCH_S = 40e-6
LATENCY_S, S_PER_BYTE, COLD_S = 10e-6, 4e-12, 0.5


class Link:
    """All-reduces of a virtual device: the first one connects; launching takes the host a while."""

    def __init__(self, cuda: VirtualCuda) -> None:
        self._cuda = cuda
        self.calls = 0

    def all_reduce(self, tensor: torch.Tensor, group: Any = None) -> None:
        self._cuda.host(LAUNCH_S)
        cold = COLD_S if self.calls == 0 else 0.0
        self.calls += 1
        self._cuda.launch(cold + true_s(tensor.numel() * 4), 0)


def true_s(size: int) -> float:
    return LATENCY_S + size * S_PER_BYTE


@pytest.fixture
def link(cuda: VirtualCuda, monkeypatch: pytest.MonkeyPatch) -> Link:
    link = Link(cuda)
    monkeypatch.setattr(dist, "all_reduce", link.all_reduce)
    return link


def timed(sizes: list[int], control: Any = None) -> dict[int, float]:
    accelerator = Accelerator(torch.device("cuda", 0))
    found = time_all_reduce(control or Control(0, 1), None, CPU, sizes, accelerator)
    return {time.bytes: time.seconds for time in found}


@pytest.mark.parametrize("sizes", [[MIB, 25 * MIB], [MIB], [400 * MIB]])
def test_it_is_the_devices_time_and_not_what_the_host_takes_to_launch(
    link: Link, sizes: list[int]
) -> None:
    # GIVEN messages that take the device a quarter of what the host takes to launch one
    found = timed(sizes)
    # THEN
    assert sorted(found) == [4, *sizes]
    for size, seconds in found.items():
        assert seconds == pytest.approx(true_s(size), rel=0.01), size


def test_the_first_one_is_not_timed_and_several_are(link: Link) -> None:
    timed([25 * MIB])
    assert link.calls >= 2 * (3 + 20)


def test_it_is_the_time_of_the_slowest_rank(link: Link) -> None:
    slower = Ranks(lambda told: 2 * told if isinstance(told, float) else told)
    assert timed([MIB], slower)[MIB] == pytest.approx(2 * true_s(MIB), rel=0.01)


class Ranks(Control):
    """Two ranks, of which the other has so much room."""

    def __init__(self, other: Any) -> None:
        super().__init__(0, 1)
        self._other = other

    def all_gather(self, value: Any) -> list[Any]:
        return [value, self._other(value)]


def test_a_buffer_is_agreed_beforehand(link: Link, cuda: VirtualCuda) -> None:
    # GIVEN another rank that has 10 MiB free beside its peak
    less = Ranks(lambda told: 10 * MIB if isinstance(told, int) and told > 10 * MIB else told)
    found = timed([MIB, 25 * MIB], less)
    assert sorted(found) == [4, MIB]


def test_where_one_rank_cannot_make_it_nobody_starts(link: Link) -> None:
    other = Ranks(lambda told: False if told is True else told)
    assert timed([MIB], other) == {}
    assert link.calls == 0


def test_where_another_rank_cannot_make_it_this_one_lets_its_own_go(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[torch.Tensor]] = []
    buffer = allreduce._buffer

    def watched(size: int, device: torch.device) -> torch.Tensor:
        tensor = buffer(size, device)
        made.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(allreduce, "_buffer", watched)
    alive: list[int] = []
    count = lambda: alive.append(sum(ref() is not None for ref in made))  # noqa: E731
    monkeypatch.setattr(torch.cuda, "empty_cache", count)
    timed([MIB], Ranks(lambda told: False if told is True else told))
    assert (len(made), alive) == (1, [0])


def test_where_this_rank_cannot_make_it_nobody_starts(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack(size: int, device: torch.device) -> torch.Tensor:
        raise OutOfMemory("CUDA out of memory.")

    monkeypatch.setattr(allreduce, "_buffer", lack)
    assert timed([MIB], Ranks(lambda told: told)) == {}
    assert link.calls == 0


def test_the_record_is_safe_before_it_starts(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[bool] = []
    file: Path = rank.folder / "launch" / record_file.FILE_NAME

    def times(state: Any) -> tuple[()]:
        there.append(file.exists())
        return ()

    monkeypatch.setattr("sfbench.probe.closing.all_reduce_times", times)
    rank.cuda.devices[0].total = 2 * GIB
    run = rank.run()
    assert there == [True]
    assert len(run.column("step_s")) > 0


@pytest.mark.parametrize("gradients", ["cuda:1", "cpu"])
def test_it_is_timed_on_the_device_of_the_gradients(
    monkeypatch: pytest.MonkeyPatch, gradients: str
) -> None:
    # GIVEN a model whose gradients lie elsewhere than the parameters of the first optimizer
    used: list[Accelerator | None] = []

    def timed(
        control: Any, group: Any, device: torch.device, sizes: Any, accelerator: Accelerator | None
    ) -> tuple[()]:
        used.append(accelerator)
        return ()

    monkeypatch.setattr(closing, "time_all_reduce", timed)
    state: Any = SimpleNamespace(
        loop_info=SimpleNamespace(bucket_bytes=(MIB,)),
        models=SimpleNamespace(
            models=[SimpleNamespace(device=torch.device(gradients), process_group=None)]
        ),
        world_size=2,
        rungs=("train", "cached"),
        control=None,
        clock=SimpleNamespace(accelerator=Accelerator(torch.device("cuda", 0))),
    )
    closing.all_reduce_times(state)
    found = [None if one is None else str(one.device) for one in used]
    assert found == [None if gradients == "cpu" else gradients]
