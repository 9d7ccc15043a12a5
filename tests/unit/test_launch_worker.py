"""What ranks and nodes are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sfbench.common.errors import UsageError
from sfbench.common.schema import RankJob
from sfbench.launch.local import environment
from sfbench.launch.rendezvous import endpoint
from sfbench.launch.worker import NodeStart
from sfbench.launch.worker import environment as rank_environment

START = NodeStart(
    entry="entries:dispatch",
    job=RankJob(script="train.py", launch_dir="launch"),
    log_dir=Path("logs"),
    nproc=4,
    first_rank=4,
    world_size=8,
    node_rank=1,
    nnodes=2,
    master_addr="node0",
    master_port=29400,
    run_id="sfbench-3",
)


def test_a_rank_of_the_second_node_is_numbered_as_torchrun_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", raising=False)

    assert rank_environment(START, local_rank=2) == {
        "RANK": "6",
        "LOCAL_RANK": "2",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_NAME": "default",
        "ROLE_RANK": "6",
        "ROLE_WORLD_SIZE": "8",
        "MASTER_ADDR": "node0",
        "MASTER_PORT": "29400",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "sfbench-3",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


@pytest.mark.parametrize(("device_type", "gpus"), [("cpu", ""), ("cuda", "0,1")])
def test_threads_are_fixed_and_gpus_hidden_from_cpu_ranks(
    monkeypatch: pytest.MonkeyPatch, device_type: str, gpus: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")

    fixed = environment(threads=3, device_type=device_type)

    changed = {name: value for name, value in fixed.items() if os.environ.get(name) != value}
    assert fixed["CUDA_VISIBLE_DEVICES"] == gpus
    others = {"HIP_VISIBLE_DEVICES": "-1", "ONEAPI_DEVICE_SELECTOR": "*:cpu"}
    assert {**changed, "CUDA_VISIBLE_DEVICES": gpus} == {
        "OMP_NUM_THREADS": "3",
        "MKL_NUM_THREADS": "3",
        "CUDA_VISIBLE_DEVICES": gpus,
        **(others if device_type == "cpu" else {}),
    }


@pytest.mark.parametrize(
    ("text", "host", "port"), [("node0:29400", "node0", 29400), ("[::1]:1", "::1", 1)]
)
def test_an_endpoint_is_host_and_port(text: str, host: str, port: int) -> None:
    assert endpoint(text) == (host, port)


@pytest.mark.parametrize("text", [None, "", "node0", "node0:", ":29400", "node0:http"])
def test_several_nodes_need_an_endpoint(text: str | None) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        endpoint(text)
