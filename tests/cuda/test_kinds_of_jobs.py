"""Other devices than CUDA's, sharded models, weights of 16 bits: measured alike, or said."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from test_out_of_memory import copies, ran
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from virtual import GIB, VirtualCuda
from virtual_job import Rank

from sfbench.common.schema import LADDER
from sfbench.probe.replaying.weights import state_bytes, total_of


def test_intels_devices_are_the_same_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a machine that has no CUDA at all, and a model on its third device
    rank = Rank(VirtualCuda(kind="xpu").install(monkeypatch), tmp_path, monkeypatch)
    rank.device = 2
    rank.wanting(rungs=LADDER)
    run = rank.run()
    # THEN every rung is timed there, nothing else is touched, and memory and clock are told
    assert ran(run) >= set(LADDER)
    for rung in LADDER:
        assert run.column("step_s", rung) == pytest.approx(rank.cost.device, abs=1e-6), rung
    assert rank.cuda.contexts == {2}
    (info,) = run.record.ranks
    assert (info.gpu_uuid, info.memory_bytes) == ("uuid-2", 80 * GIB)
    assert {one.clock_hz for one in run.record.loads[0].rungs} == {1.98e9}


@pytest.mark.parametrize(("has_fp64", "sums_in"), [(True, "float64"), (False, "float32")])
def test_checksums_need_no_float64_where_the_device_has_none(
    monkeypatch: pytest.MonkeyPatch, has_fp64: bool, sums_in: str
) -> None:
    # GIVEN a parameter on one of Intel's GPUs, which refuses what it cannot
    properties = SimpleNamespace(has_fp64=has_fp64)
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device: properties)
    asked: list[torch.dtype] = []

    class OnXpu:
        device = torch.device("xpu", 0)

        def detach(self) -> OnXpu:
            return self

        def sum(self, *, dtype: torch.dtype) -> torch.Tensor:
            asked.append(dtype)
            return torch.ones(())

    assert total_of([OnXpu()]) == 1.0  # type: ignore[list-item]
    assert asked == [getattr(torch, sums_in)]


@pytest.fixture
def one_rank() -> Iterator[None]:
    """The script's group; its collectives meet nobody."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_a_sharded_model_has_no_rungs_apart_and_is_timed(rank: Rank) -> None:
    # GIVEN FSDP2 (fully_shard): parameters are DTensors; and a proxy of what is gone
    gone = weakref.proxy(torch.nn.Linear(1, 1))
    mesh = init_device_mesh("cpu", (1,))

    def sharded() -> torch.nn.Module:
        model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Linear(8, 1))
        for part in (*model, model):
            fully_shard(part, mesh=mesh)
        return model

    rank.model = sharded
    rank.optimizer = lambda parameters: torch.optim.AdamW(parameters, 1e-3)
    rank.wanting(rungs=LADDER)
    run = rank.run()
    # THEN
    assert ran(run) == {"train", "cached"}
    assert set(run.record.unavailable) == {"unsynced", "solo"}
    assert "sharded" in run.record.unavailable["solo"]
    for rung in ("train", "cached"):
        assert run.column("step_s", rung) == pytest.approx(rank.cost.device, abs=1e-6), rung
    assert run.record.loop.wrapper == "fsdp"
    assert run.record.notes == ()
    with pytest.raises(ReferenceError):
        gone.weight  # noqa: B018


@pytest.mark.usefixtures("one_rank")
def test_ddps_python_reducer_has_no_rungs_apart(rank: Rank) -> None:
    # GIVEN a model that reads in backward whether to sync, as torch's setting makes it
    rank.model = lambda: DistributedDataParallel(torch.nn.Linear(3, 1))
    rank.wanting(rungs=LADDER)
    # pytest's monkeypatch takes the setting away when it undoes: torch's own patch does not.
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        run = rank.run()
    assert ran(run) == {"train", "cached"}
    assert "Python reducer" in run.record.unavailable["solo"]


def test_weights_of_16_bits_have_every_rung(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN parameters and optimizer state in bfloat16
    models: list[Any] = []

    def model() -> torch.nn.Module:
        models.append(torch.nn.Linear(3, 1))
        return models[0].bfloat16()

    rank.model = lambda: Cast(model())
    rank.optimizer = lambda parameters: torch.optim.SGD(parameters, 1e-3, momentum=0.9)
    rank.wanting(rungs=LADDER)
    made = copies(monkeypatch, fit=lambda on_host: True)
    run = rank.run()
    # THEN
    assert ran(run) >= set(LADDER)
    assert set(made) == {False}
    assert run.record.loop.dtype == "bfloat16"
    assert run.record.notes == ()
    parameters = list(models[0].parameters())
    assert sum(state_bytes(models, []).values()) == 2 * sum(p.numel() for p in parameters)
    assert {p.dtype for p in parameters} == {torch.bfloat16}


class Cast(torch.nn.Module):
    """Takes float32 inputs."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.inner(inputs.bfloat16())
        return output
