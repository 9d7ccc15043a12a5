"""What is said, and not said, of ranks on accelerators."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from ladder import Times, diagnosed, launched, load, loop

from sfbench.common.schema import AllReduceTime, Diagnosis
from sfbench.protocol.evidence import Model, RankEvidence
from sfbench.protocol.records import RankInfo

GPUS = tuple(
    RankInfo(rank=r, local_rank=r, host="here", device=f"cuda:{r}", pid=r, threads=1)
    for r in range(4)
)
CROWDED = Times(cached=[0.2] * 4, unsynced=[0.2] * 4, solo=[0.1] * 4)
MIB = 2**20
NAN = [float("nan")] * 4


def test_a_waiting_thread_that_spins_is_neither_memory_nor_cores() -> None:
    # GIVEN threads that spend 100 ms more CPU time, and 100 ms without a core, beside the others
    together, alone = {"unsynced": 0.2, "solo": 0.1}, {"unsynced": 0.1, "solo": 0.0}
    loads = tuple(load(r, cpu_s=together, delay_s=alone) for r in range(4))
    found = diagnosed(launched(0, CROWDED, loads=loads, ranks=GPUS)).only("host-contention", 4)
    assert found.evidence["limit"] == "unknown"
    assert "time does not tell for what" in found.advice[0]


@pytest.mark.parametrize(("beside", "limit"), [(1.2e9, "power"), (1.85e9, "unknown")])
def test_a_lower_clock_beside_the_others_is_power(beside: float, limit: str) -> None:
    # GIVEN steps of 0.15 s that take 0.1 s alone, at 1.9 GHz
    times = Times(cached=[0.15] * 4, unsynced=[0.15] * 4, solo=[0.1] * 4)
    loads = tuple(load(r, clock_hz={"unsynced": beside, "solo": 1.9e9}) for r in range(4))
    found = diagnosed(launched(0, times, loads=loads, ranks=GPUS)).only("host-contention", 4)
    assert found.evidence["limit"] == limit
    assert found.evidence["clock_hz"] == beside
    assert ("1200 MHz beside the others and 1900 alone" in found.advice[0]) == (limit == "power")


def straggler(times: Times) -> Diagnosis:
    loads = tuple(load(r, delay_s={"unsynced": 0.025 if r == 2 else 0.0}) for r in range(4))
    return diagnosed(launched(0, times, loads=loads, ranks=GPUS)).only("straggler", 4)


def test_unknown_phases_place_no_slowness() -> None:
    found = straggler(
        Times(cached=[0.13] * 4, unsynced=[0.1, 0.1, 0.13, 0.1], forward=NAN, update=NAN)
    )
    assert found.rank == 2
    assert found.evidence["where"] == "unknown"
    assert found.evidence["slower_forward_s"] is None
    assert "30.0 ms longer per step than the others, alone" in found.advice[0]
    assert "in unknown" not in found.advice[0]
    json.dumps(asdict(found), allow_nan=False)


def test_known_phases_place_it() -> None:
    found = straggler(
        Times(
            cached=[0.13] * 4,
            unsynced=[0.1, 0.1, 0.13, 0.1],
            forward=[0.03, 0.03, 0.06, 0.03],
            update=[0.01] * 4,
        )
    )
    assert found.evidence["where"] == "forward"


LINK = tuple(AllReduceTime(bytes=n, seconds=1e-4 + n * 2e-9) for n in (4, 25 * MIB))


def communication(*, seconds: float = 0.15, hook: bool = False, **changes: object) -> Diagnosis:
    """Steps of 0.1 s without sync, by a link on which 25 MiB take 52 ms."""
    model = Model(line="train.py:1", own_hook=hook)
    evidence = tuple(
        RankEvidence(rank=r, host="here", threads=1, peers=(0, 1, 2, 3), models=(model,))
        for r in range(4)
    )
    times = Times(
        cached=[seconds] * 4, unsynced=[0.1] * 4,
        **{"forward": [0.03] * 4, "update": [0.01] * 4, **changes},  # type: ignore[arg-type]
    )  # fmt: skip
    job = replace(loop(backend="nccl"), bucket_bytes=(MIB, 25 * MIB))
    launch = launched(0, times, all_reduce=LINK, loop=job, ranks=GPUS, evidence=evidence)
    return diagnosed(launch).only("interconnect", 4)


def test_without_phases_the_link_is_neither_blamed_nor_cleared() -> None:
    found = communication(forward=NAN, update=NAN)
    assert found.evidence["bound"] == "unknown"
    assert found.evidence["backward_s"] is None
    assert found.evidence["forward_longer_with_sync_s"] is None
    json.dumps(asdict(found), allow_nan=False)


def test_advice_on_nccl_is_not_that_on_gloo() -> None:
    found = communication()
    assert found.evidence["bound"] == "bandwidth"
    assert any("NCCL_DEBUG" in line for line in found.advice)
    assert any("bf16" in line for line in found.advice)
    beside = communication(seconds=0.5)
    assert beside.evidence["bound"] == "not-the-link"
    assert any("fewer channels" in line for line in beside.advice)
    assert not any("communication threads" in line for line in beside.advice)


def test_bf16_gradients_are_no_advice_where_a_hook_compresses_already() -> None:
    found = communication(hook=True)
    assert not any("bf16" in line for line in found.advice)
    assert found.evidence["bf16_compression_saves_s"] is None


@pytest.mark.parametrize(("waited_s", "limit"), [(0.0, "workers"), (0.05, "cores")])
def test_a_spinning_thread_takes_no_core_from_the_workers(waited_s: float, limit: str) -> None:
    # GIVEN four ranks whose threads spin, and loading that needs most of the host's cores
    loads = tuple(
        load(r, fetch_s=0.15, fetch_cpu_s=0.15 - waited_s, fetch_delay_s=waited_s,
             cpu_s={"cached": 0.1})
        for r in range(4)
    )  # fmt: skip
    times = Times(
        train=[0.16] * 4, cached=[0.1] * 4, unsynced=[0.1] * 4, solo=[0.1] * 4, data_wait=[0.06] * 4
    )
    job = loop(loader_workers=1)
    found = diagnosed(launched(0, times, loads=loads, ranks=GPUS, loop=job)).only(
        "data-loader-starvation", 4
    )
    assert found.evidence["limit"] == limit
