"""What nodes tell each other, and which of them may not take part."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from sfbench.common.schema import ProbeOptions
from sfbench.launch.node_messages import (
    LaunchOrder,
    NodeEnd,
    NodeFacts,
    fitting,
    from_text,
    to_text,
)
from sfbench.launch.outcome import LaunchError, failure_of, failure_text
from sfbench.run.node_facts import difference

FACTS = NodeFacts(
    host="a", address="10.0.0.1", reached="10.0.0.1", clock_s=0.0, sfbench="1.0", python="3.11.2",
    torch="2.13.0", nccl="2.27.3", gpu_driver="570.1", gpus=("H200", "H200"), device_type="cuda",
    threads_per_device=1, cpu="", cores=0, script="train.py", script_sha256="ab",
    script_args=("--lr", "0.1"), nnodes=2, devices=(1, 2),
)  # fmt: skip
ERROR = LaunchError(
    kind="signal", rank=1, message="gone", last_lines=("a", "b"), log="x/rank1.log",
    script_fault=True,
)  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        FACTS,
        LaunchOrder(
            run_id="job-3", spread=(2, 1), timeout_s=5.0, log_name="round1-devices3",
            probe=ProbeOptions(rungs=("train", "cached"), warmup_steps=3, seed=7),
        ),
        LaunchOrder(over=""),
        NodeEnd(status="failed", error=ERROR, logs={"rank1.log": "last"}, evidence={}),
    ],
)  # fmt: skip
def test_a_message_comes_over_whole(message: NodeFacts | LaunchOrder | NodeEnd) -> None:
    assert from_text(type(message), to_text(message).encode()) == message
    assert failure_of(failure_text(ERROR)) == ERROR


@pytest.mark.parametrize("character", ["a", "\x00", "\U0001f600"])
def test_a_node_s_end_fits_into_the_store(character: str) -> None:
    logs = {f"rank{i}.log": character * 65_536 + f"end of {i}" for i in range(64)}
    evidence = {f"evidence-{i}.json": character * 10**6 for i in range(64)}

    end = fitting(NodeEnd(status="failed", error=ERROR, logs=logs, evidence=evidence))

    assert len(to_text(end)) < 3 << 20
    assert all(end.logs[f"rank{i}.log"].endswith(f"end of {i}") for i in range(64))
    assert all(len(text) == 10**6 for text in end.evidence.values())


def test_a_small_end_is_whole() -> None:
    end = NodeEnd(status="failed", error=ERROR, logs={"rank1.log": "a"}, evidence={"e": "{}"})

    assert fitting(end) == end


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(ValidationError):
        from_text(NodeEnd, b'{"status": "ok"}')


def test_nodes_alike_differ_in_host_and_address_alone() -> None:
    other = replace(FACTS, host="b", address="10.0.0.2", reached="10.0.0.9", clock_s=-4.9)

    assert difference(FACTS, other) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sfbench": "1.1"}, "sfbench: 1.1 there, 1.0 here"),
        ({"python": "3.12.0"}, "python: 3.12.0 there"),
        ({"torch": "2.12.0"}, "torch: 2.12.0 there, 2.13.0 here"),
        ({"nccl": "2.21.5"}, "NCCL: 2.21.5 there"),
        ({"gpu_driver": ""}, "GPU driver: none there, 570.1 here"),
        ({"gpus": ("H200",)}, "GPUs: H200 there, H200, H200 here"),
        ({"threads_per_device": 2}, "threads per device: 2 there, 1 here; give --threads"),
        ({"cores": 4}, "cores: 4 there"),
        ({"cpu": "Xeon"}, "CPU: Xeon there"),
        ({"script_sha256": "cd"}, "SHA-256 of the script: cd there, ab here; copy the same script"),
        ({"script_args": ()}, "the script's arguments: none there, --lr, 0.1 here"),
        ({"devices": (1,)}, "--devices: 1 there, 1, 2 here"),
        ({"nnodes": 3}, "--nnodes: 3 there, 2 here"),
        ({"clock_s": 61.0}, "its clock is 61.0 s ahead"),
        ({"clock_s": -7.0}, "its clock is 7.0 s behind"),
    ],
)
def test_a_difference_is_told_with_its_field_and_both_values(
    changed: dict[str, object], words: str
) -> None:
    assert words in str(difference(FACTS, replace(FACTS, **changed)))  # type: ignore[arg-type]
