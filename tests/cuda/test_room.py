"""Where the copy of the weights goes while ranks run apart."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sfbench.probe.replaying.memory import (
    DeviceRoom,
    Keeping,
    Room,
    host_free_bytes,
    place_for_weights,
)
from sfbench.probe.replaying.weights import Snapshot, state_bytes

GIB = 2**30


def h200(*names: str, free: float = 70 * GIB, host: str = "a", host_free: int = 1000 * GIB) -> Room:
    """A rank that needs 58 GiB on each of its devices; without names on one that nobody shares."""
    found = tuple(
        DeviceRoom(device=name, needs=58 * GIB, total=140 * GIB, free=int(free))
        for name in names or (f"GPU-{next(NUMBERS)}",)
    )
    return Room(host=host, devices=found, host_free=host_free)


NUMBERS = itertools.count()


def test_beside_the_job_where_every_rank_has_room() -> None:
    assert place_for_weights([h200() for _ in range(8)]) == Keeping(where="device")


def test_in_the_hosts_memory_where_one_rank_has_not() -> None:
    rooms = [h200() for _ in range(7)]
    assert place_for_weights([*rooms, h200(free=20 * GIB)]).where == "host"


def test_the_last_bytes_of_a_device_are_not_taken() -> None:
    assert place_for_weights([h200(free=58 * GIB + 1)]).where == "host"


def test_nowhere_says_why() -> None:
    # GIVEN eight ranks that together would need 464 GiB of one host's memory
    tight = [h200(free=20 * GIB, host_free=700 * GIB) for _ in range(3)]
    found = place_for_weights([*(h200() for _ in range(5)), *tight])
    assert found.where == "nowhere"
    assert "58.0 GiB for a copy" in found.reason
    assert "20.0 GiB of the device's memory are free beside the job's peak on rank 5" in (
        found.reason
    )
    assert "464.0 GiB of 700.0 GiB" in found.reason


def test_each_host_is_asked() -> None:
    tight = [h200(free=0, host_free=120 * GIB) for _ in range(2)]
    other = h200(free=0, host_free=120 * GIB, host="b")
    assert place_for_weights([tight[0], other]).where == "host"
    assert place_for_weights([*tight, other]).where == "nowhere"


@pytest.mark.parametrize(("free", "where"), [(125, "device"), (119, "host")])
def test_ranks_that_share_a_device_need_room_for_both(free: int, where: str) -> None:
    # GIVEN two ranks on one GPU, of which each would find room for its own copy
    rooms = [h200("GPU-1", free=free * GIB), h200("GPU-1", free=130 * GIB)]
    assert place_for_weights(rooms).where == where


def test_each_device_of_a_model_on_two_is_asked() -> None:
    assert place_for_weights([h200("GPU-1", "GPU-2")]).where == "device"
    full = replace(h200("GPU-2", free=20 * GIB).devices[0])
    both = replace(h200("GPU-1"), devices=(*h200("GPU-1").devices, full))
    assert place_for_weights([both]).where == "host"
    assert both.needs == 116 * GIB


def test_the_hosts_free_memory_is_the_least_of_what_is_told(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    assert host_free_bytes(meminfo, tmp_path) == 0
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    1000 kB\n")
    assert host_free_bytes(meminfo, tmp_path) == 1_024_000
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("500\n")
    assert host_free_bytes(meminfo, tmp_path) == 1_024_000
    (tmp_path / "memory.max").write_text("900\n")
    assert host_free_bytes(meminfo, tmp_path) == 400
    assert host_free_bytes() > 0


@pytest.mark.parametrize("on_host", [False, True])
def test_a_snapshot_takes_what_was_said_and_puts_it_back(on_host: bool) -> None:
    model = torch.nn.Linear(300, 300, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 300)).sum().backward()
    optimizer.step()
    before = [p.detach().clone() for p in model.parameters()]
    snapshot = Snapshot([model], [optimizer], [], on_host=on_host)
    taken = state_bytes([model], [optimizer])
    assert taken == {torch.device("cpu"): 3 * 4 * 300 * 300 + 4}  # and a step counter
    optimizer.step()
    snapshot.restore()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    kept = [t.data_ptr() for t in snapshot._kept]
    assert not set(kept) & {p.data_ptr() for p in model.parameters()}
