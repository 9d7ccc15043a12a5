"""Where a machine stands among others: options, and what schedulers set."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from sfbench.common.errors import UsageError
from sfbench.plan.machine import Machine
from sfbench.plan.node_environment import ALONE, NodePlace, node_place, whole_endpoint
from sfbench.plan.node_list import host_names
from sfbench.plan.options import Settings
from sfbench.plan.planner import make_plan, pinning
from sfbench.plan.rounds import Launched, next_launch
from sfbench.plan.settings import load_settings
from sfbench.plan.sweep_plan import NodeJob, SweepPlan, Target

SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_NNODES": "2",
    "SLURM_NODEID": "1",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
}
KUBEFLOW = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "8",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "train-node-0-0.train",
    "PET_MASTER_PORT": "29400",
}
SKYPILOT = {
    "SKYPILOT_NUM_NODES": "2",
    "SKYPILOT_NODE_RANK": "1",
    "SKYPILOT_NODE_IPS": "10.0.0.5\n10.0.0.6\n",
}


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("login", ["login"]),
        ("a,b", ["a", "b"]),
        ("gpu[01-03,7],login", ["gpu01", "gpu02", "gpu03", "gpu7", "login"]),
        ("gpu[098-101]", ["gpu098", "gpu099", "gpu100", "gpu101"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[1,3]-ib.cluster", ["n1-ib.cluster", "n3-ib.cluster"]),
        (" a , b ", ["a", "b"]),
        ("", []),
    ],
)
def test_a_node_list_stands_for_its_hosts(text: str, hosts: list[str]) -> None:
    assert host_names(text) == hosts


@pytest.mark.parametrize("text", ["gpu[1-2", "gpu1]", "gpu[a-b]", "gpu[[1]]", "gpu[]"])
def test_what_is_no_node_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\[|bracket"):
        host_names(text)


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [
        (SLURM, "gpu07:24711"),
        ({**SLURM, "SLURM_STEP_NODELIST": "gpu08"}, "gpu08:24711"),
        (
            {k: SLURM[k] for k in ("SLURM_NNODES", "SLURM_NODEID", "SLURM_JOB_NODELIST")},
            "gpu07:29500",
        ),
        (KUBEFLOW, "train-node-0-0.train:29400"),
        ({**KUBEFLOW, "PET_NNODES": "2:2", "PET_RDZV_ENDPOINT": "a:1"}, "a:1"),
        (SKYPILOT, "10.0.0.5:29500"),
        ({**KUBEFLOW, "PET_MASTER_ADDR": "fd00::1"}, "[fd00::1]:29400"),
        ({**SKYPILOT, "SKYPILOT_NODE_IPS": "fd00::1\nfd00::2"}, "[fd00::1]:29500"),
        ({**SLURM, **KUBEFLOW}, "train-node-0-0.train:29400"),
    ],
)
def test_schedulers_tell_all_three(environment: dict[str, str], endpoint: str) -> None:
    place = node_place(Settings(), environment)

    assert place == NodePlace(nnodes=2, node_rank=1, endpoint=endpoint)


@pytest.mark.parametrize(
    "broken",
    [
        {"PET_NNODES": "x", "PET_NODE_RANK": "y"},
        {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_NNODES": "x", "SLURM_NODEID": "y"},
        {**SLURM, "SLURM_NTASKS": "8", "SLURM_JOB_NODELIST": "gpu[7"},
        {"SKYPILOT_NUM_NODES": "x", "SKYPILOT_NODE_RANK": "y"},
    ],
)
def test_what_an_option_says_is_not_read(broken: dict[str, str]) -> None:
    given = Settings(nnodes=3, node_rank=2, rdzv_endpoint="head:5")

    assert node_place(given, broken) == NodePlace(nnodes=3, node_rank=2, endpoint="head:5")


@pytest.mark.parametrize(
    ("given", "environment", "endpoint"),
    [
        (Settings(nnodes=2, node_rank=1), {"PET_RDZV_ENDPOINT": "a:1"}, "a:1"),
        (Settings(nnodes=2), {"PET_MASTER_ADDR": "a", "PET_NODE_RANK": "1"}, "a:29500"),
        (Settings(), {**SLURM, "PET_RDZV_ENDPOINT": "a:1"}, "a:1"),
        (Settings(), {**KUBEFLOW, "SLURM_NNODES": "x"}, "train-node-0-0.train:29400"),
    ],
)
def test_each_is_read_by_itself(
    given: Settings, environment: dict[str, str], endpoint: str
) -> None:
    assert node_place(given, environment) == NodePlace(nnodes=2, node_rank=1, endpoint=endpoint)


def test_options_win_one_by_one() -> None:
    given = Settings(nnodes=3, node_rank=2, rdzv_endpoint="head:5")

    assert node_place(given, SLURM) == NodePlace(nnodes=3, node_rank=2, endpoint="head:5")
    assert node_place(Settings(rdzv_endpoint="head"), SKYPILOT) == NodePlace(
        nnodes=2, node_rank=1, endpoint="head:29500"
    )


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_NNODES": "1", "SLURM_NODEID": "0"},
        {"PET_NNODES": "1", "PET_NODE_RANK": "0"},
        {"SKYPILOT_NUM_NODES": "1", "SKYPILOT_NODE_RANK": "0"},
    ],
)
def test_one_node_is_alone(environment: dict[str, str]) -> None:
    assert node_place(Settings(), environment) == ALONE


def test_a_batch_script_without_srun_is_one_node_and_is_told_so() -> None:
    batch = {k: v for k, v in SLURM.items() if k != "SLURM_STEP_ID"}

    place = node_place(Settings(), batch)

    assert (place.nnodes, place.endpoint) == (1, None)
    assert "srun sfbench sweep" in place.notes[0]


@pytest.mark.parametrize("typed", ["0", ""])
def test_a_rank_that_the_shell_put_in_once_is_recognised(typed: str) -> None:
    # --node-rank=$SLURM_NODEID: 0 in the batch script, nothing on the login node
    place = node_place(load_settings({"node_rank": typed}, Path("/")), SLURM)

    assert place.node_rank == 1
    assert [("SLURM_NODEID" in note) for note in place.notes] == ([True] if typed else [])


@pytest.mark.parametrize(
    ("given", "environment", "words"),
    [
        ({"nnodes": 2}, {}, "PET_NODE_RANK"),
        ({"nnodes": 2, "node_rank": 0}, {}, "SLURM_JOB_NODELIST"),
        ({"node_rank": 1}, {}, "--nnodes"),
        ({"nnodes": 2, "node_rank": 2, "rdzv_endpoint": "a:1"}, {}, "from 0 to 1"),
        ({}, {**SLURM, "SLURM_NTASKS": "8"}, "--ntasks-per-node=1"),
        ({}, {**SLURM, "SLURM_JOB_NODELIST": "gpu[7"}, "SLURM_JOB_NODELIST"),
        ({}, {**KUBEFLOW, "PET_NNODES": "1:4"}, "PET_NNODES"),
        ({}, {**KUBEFLOW, "PET_NODE_RANK": "x"}, "PET_NODE_RANK=x"),
    ],
)
def test_what_is_missing_or_wrong_is_named(
    given: dict[str, object], environment: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        node_place(Settings.model_validate(given), environment)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("a", "a:29500"),
        ("a:7", "a:7"),
        ("[fe80::1]:7", "[fe80::1]:7"),
        ("fe80::1", "[fe80::1]:29500"),
    ],
)
def test_an_endpoint_without_port_gets_torchruns(text: str, whole: str) -> None:
    assert whole_endpoint(text) == whole


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:b", "a:0", "a:65536"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        whole_endpoint(text)


def plan(devices: str, nnodes: int, cores: int = 8) -> SweepPlan:
    settings = load_settings({"devices": devices}, Path("/"))
    place = NodePlace(nnodes=nnodes, node_rank=0, endpoint="a:1")
    return make_plan(settings, TARGET, machine(cores), datetime(2026, 1, 1), place)


def machine(cores: int) -> Machine:
    return Machine(cores=tuple(range(cores)), quota=None, gpus=())


TARGET = Target(name="train", script=Path("/train.py"), is_workload=False)


@pytest.mark.parametrize(
    ("devices", "nnodes", "spread"),
    [
        ("1,2", 2, {1: (1,), 2: (1, 1)}),
        ("1,2,4,8", 2, {1: (1,), 2: (2,), 4: (4,), 8: (4, 4)}),
        ("4,8,16", 4, {4: (4,), 8: (4, 4), 16: (4, 4, 4, 4)}),
        ("1,3,5", 2, {1: (1,), 3: (3,), 5: (3, 2)}),
        ("1,2,4", 3, {1: (1,), 2: (2,), 4: (2, 1, 1)}),
        ("1,2,4", 1, {1: (1,), 2: (2,), 4: (4,)}),
    ],
)
def test_a_count_runs_on_as_few_nodes_as_it_fits_on(
    devices: str, nnodes: int, spread: dict[int, tuple[int, ...]]
) -> None:
    wanted = plan(devices, nnodes)

    assert {n: wanted.spread(n) for n in wanted.devices} == spread


def test_threads_and_cores_are_those_of_one_node() -> None:
    wanted = plan("1,4", 2)

    assert wanted.threads_per_device == 4
    assert pinning(wanted, 2, machine(8)) == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_more_nodes_than_devices_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 4"):
        plan("1,2", 4)


def test_a_count_that_lacks_a_node_is_not_tried_again() -> None:
    wanted = replace(plan("1,2", 2), rounds=3)
    done = [
        Launched(devices=1, round=0, ok=True),
        Launched(devices=2, round=0, ok=True),
        Launched(devices=2, round=1, ok=False, last=True),
    ]

    rest = []
    while launch := next_launch(wanted, machine(8), done):
        rest.append(launch.devices)
        done.append(Launched(devices=launch.devices, round=launch.round, ok=True))

    assert rest == [1, 1]


def test_ranks_are_numbered_over_nodes_of_unlike_size() -> None:
    from sfbench.common.schema import RankJob

    job = RankJob(script="/train.py", launch_dir="/launch")
    nodes = [
        NodeJob(
            job=job, nproc=n, log_dir=Path("/logs"), timeout_s=1.0, nnodes=2, node_rank=i,
            spread=(3, 2),
        )
        for i, n in enumerate((3, 2))
    ]  # fmt: skip

    assert [(node.devices, node.first_rank) for node in nodes] == [(5, 0), (5, 3)]
