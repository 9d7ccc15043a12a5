"""What the tool takes of a device's memory, and that batches stay pinned."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from virtual import GIB
from virtual_job import Rank

from sfbench.common.schema import LADDER, Rung
from sfbench.probe.recording.replicas import weight_sums
from sfbench.probe.replaying.ring import Ring, ring_bytes
from sfbench.probe.replaying.weights import checksum


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that is made and is no view."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        given = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
        if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() not in given:
            self.most = max(self.most, out.numel() * out.element_size())
        return out


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_checksums_copy_no_parameter(kind: torch.dtype, layout: torch.memory_format) -> None:
    values = torch.linspace(0, 1, 64 * 4 * 8 * 8).reshape(64, 4, 8, 8).to(kind)
    parameter = torch.nn.Parameter(values.contiguous(memory_format=layout))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with Largest() as made:
        total = checksum([optimizer])
        _, outside = weight_sums([], [parameter])
    assert made.most <= 8  # one number
    assert total == pytest.approx(float(values.double().sum()))
    assert outside is None


def test_checksums_tell_where_a_value_moved() -> None:
    one, other = torch.zeros(21), torch.zeros(21)
    one[0] = other[1] = 1.0
    sums = [weight_sums([], [torch.nn.Parameter(t)])[0] for t in (one, other)]
    assert sums[0] != sums[1]


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Pinning by address: there is no driver that would do it."""
    places: set[int] = set()
    kept: list[torch.Tensor] = []

    def pin(tensor: torch.Tensor, *_: Any) -> torch.Tensor:
        twin = tensor.clone()
        kept.append(twin)
        places.add(twin.untyped_storage().data_ptr())
        return twin

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(
        torch.Tensor, "is_pinned", lambda t, *_: t.untyped_storage().data_ptr() in places
    )
    return places


@pytest.mark.parametrize("rung", ["cached", "solo", "half", "double"])
@pytest.mark.parametrize("pin", [True, False])
@pytest.mark.usefixtures("pinned")
def test_batches_are_pinned_as_the_originals_on_every_rung(rung: Rung, pin: bool) -> None:
    x, y = torch.rand(8, 3), torch.arange(8)
    ring = Ring()
    ring.keep("L", [x.pin_memory(), y.pin_memory()] if pin else [x, y], 8)
    ring.rewind(rung)
    batch, samples = ring.take("L")
    assert [t.is_pinned() for t in batch] == [pin, pin]
    assert samples == len(batch[0]) == {"half": 4, "double": 16}.get(rung, 8)


@pytest.mark.parametrize(
    ("free", "ranks", "wanted"),
    [(2000 * GIB, 8, GIB), (200 * GIB, 8, 0.5 * GIB), (4 * GIB, 8, GIB / 16)],
)
def test_the_ring_goes_with_the_hosts_memory(free: int, ranks: int, wanted: float) -> None:
    assert ring_bytes(free, ranks) == pytest.approx(wanted, rel=0.1)


def test_a_sessions_ring_goes_with_what_is_free(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfbench.probe.session.host_free_bytes", lambda: 4 * GIB)
    rank.wanting(rungs=LADDER)
    session = rank.start()
    ring = session.replay.ring
    session.remove()
    assert ring is not None
    assert ring._most == ring_bytes(4 * GIB, 1) < GIB


def test_a_ring_holds_no_more_than_it_may() -> None:
    ring = Ring(most_bytes=4 * 2 * 100 * 4)
    for _ in range(8):
        ring.keep("L", torch.zeros(100), 100)
    assert (ring.count("L"), ring.full) == (4, True)


def test_the_ring_is_frozen_when_measuring_begins(rank: Rank) -> None:
    rank.wanting(rungs=LADDER)
    session, seen = rank.start(), []

    def count(step: int) -> None:
        ring = session.replay.ring
        if session.measuring_began and ring is not None and session.flow.loop is not None:
            seen.append(ring.count(session.flow.loop.primary))

    rank.after_step = count
    rank.run()
    assert seen[0] > 4
    assert set(seen) == {seen[0]}
