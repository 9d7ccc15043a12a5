"""straggler: which rank, where, alone or only together; or another one each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ladder import Times, diagnosed, launched, load, loop

from sfbench.common.schema import Diagnosis
from sfbench.launch.outcome import GpuState
from sfbench.protocol.records import RankInfo

ID = "straggler"


def slow(phase: str = "forward", *, alone: bool = True) -> Times:
    """4 ranks of 100 ms, rank 2 takes 30 ms longer in a phase."""
    ranks = [0.1, 0.1, 0.13, 0.1]
    spent: dict[str, Any] = {"forward": [0.03] * 4, "update": [0.01] * 4}
    if phase in spent:
        spent[phase][2] += 0.03
    return Times(cached=[0.13] * 4, unsynced=ranks, solo=ranks if alone else [0.1] * 4, **spent)


@pytest.mark.parametrize(
    ("phase", "where"),
    [("forward", "forward"), ("update", "optimizer step"), ("backward", "backward")],
)
def test_the_slow_rank_and_its_phase(phase: str, where: str) -> None:
    found = diagnosed(launched(0, slow(phase))).only(ID, 4)
    assert (found.severity, found.rank) == ("bottleneck", 2)
    assert found.regain.value == pytest.approx(3 / 13, abs=1e-6)
    assert found.evidence["kind"] == "persistent"
    assert found.evidence["where"] == where
    assert found.evidence["slower_s_per_step"] == 0.03
    assert found.evidence["alone"] is True
    assert f"30.0 ms longer per step than the others, in {where}, alone" in found.advice[0]


def test_a_cpu_is_no_device_to_exchange() -> None:
    here = diagnosed(launched(0, slow())).only(ID, 4)
    assert "code that only this rank runs" in here.advice[0]
    assert not any("exchange the device" in line for line in here.advice)
    # GIVEN devices that are emulated
    emulated = diagnosed(launched(0, slow(), loop=loop(emulated=True))).only(ID, 4)
    assert "exchange the device" in emulated.advice[0]


def test_slow_everywhere_is_said_as_everything() -> None:
    ranks = [0.1, 0.1, 0.15, 0.1]
    times = Times(
        cached=[0.15] * 4, unsynced=ranks, forward=[0.03, 0.03, 0.045, 0.03],
        update=[0.02, 0.02, 0.03, 0.02],
    )  # fmt: skip
    assert diagnosed(launched(0, times)).only(ID, 4).evidence["where"] == "everything"


def test_slow_only_beside_the_others_is_the_host() -> None:
    found = diagnosed(launched(0, slow(alone=False))).only(ID, 4)
    assert found.evidence["alone"] is False
    assert "only while the other ranks run" in found.advice[0]


def test_a_rank_without_a_core_has_a_rival() -> None:
    # GIVEN rank 2 ready but without a core for 25 of its 30 ms
    delays = [0.0, 0.0, 0.025, 0.0]
    loads = tuple(load(r, delay_s={"unsynced": delays[r]}) for r in range(4))
    found = diagnosed(launched(0, slow(), loads=loads)).only(ID, 4)
    assert found.evidence["longer_without_core_s_per_step"] == 0.025
    assert "another process runs there" in found.advice[0]


def test_the_gpu_of_the_slow_rank_beside_the_others() -> None:
    # GIVEN four GPUs, that of rank 2 hot and held down
    ranks = tuple(
        RankInfo(
            rank=r, local_rank=r, host="a", device=f"cuda:{r}", pid=r, threads=1, gpu_uuid=f"u{r}"
        )
        for r in range(4)
    )
    gpus = tuple(
        GpuState(
            uuid=f"GPU-u{r}", clock_hz=1.2e9 if r == 2 else 1.8e9,
            temperature_c=91.0 if r == 2 else 60.0, load_ratio=0.9,
            throttled=("heat",) if r == 2 else (),
        )
        for r in range(4)
    )  # fmt: skip
    found = diagnosed(launched(0, slow(), ranks=ranks, gpus=gpus)).only(ID, 4)
    assert (found.evidence["clock_hz"], found.evidence["others_clock_hz"]) == (1.2e9, 1.8e9)
    assert found.evidence["throttled_by"] == "heat"
    assert found.advice[-1] == (
        "Its clock ran at 1200 MHz, the others' at 1800, at 91 °C beside 60; held down by: heat. "
        "See to its cooling, power limit and clock settings."
    )


def test_a_gpu_of_another_node_is_no_number() -> None:
    found = diagnosed(launched(0, slow())).only(ID, 4)
    assert "clock_hz" not in found.evidence


def rotating(cost: np.ndarray[Any, np.dtype[np.float64]], kept: int = 6) -> Diagnosis:
    """Unsynced steps of 100 ms and more; cost[cycle, rank, step] in s. Shape (8, 4, 4)."""
    worst = float(cost.max(axis=1).mean())
    launch = launched(0, Times(cached=[0.1 + worst] * 4, unsynced=[0.1] * 4), kept_batches=kept)
    assert launch.steps is not None
    rung, block, rank = launch.steps[:, 4], launch.steps[:, 2], launch.steps[:, 0]
    for cycle in range(8):
        for r in range(4):
            here = (rung == 2) & (block == 4 * cycle + 2) & (rank == r)
            launch.steps[here, 8] = 0.1 + cost[cycle, r]
    return diagnosed(launch).only(ID, 4)


def test_another_rank_each_step_is_jitter() -> None:
    # GIVEN 40 ms more on a random rank each step
    random = np.random.default_rng(1)
    cost = np.zeros((8, 4, 4))
    slow_rank = random.integers(0, 4, size=(8, 4))
    for cycle in range(8):
        for place in range(4):
            cost[cycle, slow_rank[cycle, place], place] = 0.04
    found = rotating(cost)
    # THEN 40 ms are lost but for the mean over ranks, 10 ms, which is theirs
    assert (found.rank, found.severity) == (None, "bottleneck")
    assert found.evidence["kind"] == "rotating"
    assert found.regain.value == pytest.approx(0.03 / 0.14, abs=1e-3)
    assert found.evidence["likely"] == "random"


def test_jitter_that_comes_again_with_the_batch_is_uneven_batches() -> None:
    # GIVEN 8 batches of each rank, of which each cycle replays the next 4, and costs of their own
    random = np.random.default_rng(2)
    own = random.uniform(0, 0.1, size=(4, 8))
    own += 0.05 - own.mean(axis=1, keepdims=True)  # no rank is slow for long
    cost = np.stack([own[:, 4 * (c % 2) : 4 * (c % 2) + 4] for c in range(8)])
    found = rotating(cost, kept=8)
    assert found.evidence["likely"] == "uneven-batches"
    assert "sort samples by length" in found.advice[0]


def test_rare_long_steps_are_pauses() -> None:
    # GIVEN 4 of 128 steps that take 0.3 s longer
    cost = np.zeros((8, 4, 4))
    for cycle, rank in enumerate((0, 1, 2, 3)):
        cost[2 * cycle + 1, rank, cycle] = 0.3
    found = rotating(cost)
    assert found.evidence["likely"] == "rare-pauses"
