"""Where the copy of the weights goes while ranks run apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sfbench.probe.replaying.memory import (
    Keeping,
    Room,
    host_free_bytes,
    place_for_weights,
)
from sfbench.probe.replaying.weights import Snapshot, state_bytes

GIB = 2**30
H200 = Room(
    host="a", needs=58 * GIB, device_total=140 * GIB, device_free=70 * GIB, host_free=1000 * GIB
)


def test_beside_the_job_where_every_rank_has_room() -> None:
    assert place_for_weights([H200] * 8) == Keeping(where="device")


def test_in_the_hosts_memory_where_one_rank_has_not() -> None:
    tight = replace(H200, device_free=20 * GIB)
    assert place_for_weights([H200] * 7 + [tight]).where == "host"


def test_the_last_bytes_of_a_device_are_not_taken() -> None:
    assert place_for_weights([replace(H200, device_free=58 * GIB + 1)]).where == "host"


def test_nowhere_says_why() -> None:
    # GIVEN eight ranks that together would need 464 GiB of one host's memory
    tight = replace(H200, device_free=20 * GIB, host_free=700 * GIB)
    found = place_for_weights([H200] * 5 + [tight] * 3)
    assert found.where == "nowhere"
    assert "58.0 GiB for a copy" in found.reason
    assert "20.0 GiB of the device's memory are free beside the job's peak on rank 5" in (
        found.reason
    )
    assert "464.0 GiB of 700.0 GiB" in found.reason


def test_each_host_is_asked() -> None:
    tight = replace(H200, device_free=0, host_free=120 * GIB)
    other = replace(tight, host="b")
    assert place_for_weights([tight, other]).where == "host"
    assert place_for_weights([tight, tight, other]).where == "nowhere"


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
    assert state_bytes([model], [optimizer]) == 3 * 4 * 300 * 300 + 4  # and a step counter
    optimizer.step()
    snapshot.restore()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    kept = [t.data_ptr() for t in snapshot._kept]
    assert not set(kept) & {p.data_ptr() for p in model.parameters()}
