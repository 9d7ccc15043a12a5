"""What a stack is about."""

from __future__ import annotations

import gc
import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
import torch

from sfbench.probe.hooks.pulse import Pulse
from sfbench.probe.recording.call_site import CallSite
from sfbench.probe.recording.late_steps import LOOK_EVERY_S, LateSteps, kind_and_line


class Looking(torch.nn.Module):
    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self.look = look

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.look()
        return x


class Collected:
    def __init__(self, look: Callable[[], None]) -> None:
        self.look = look

    def __del__(self) -> None:
        self.look()

    def __reduce__(self) -> tuple[object, ...]:
        self.look()
        return (str, ())


def seen(work: Callable[[Callable[[], None]], object]) -> tuple[str, str] | None:
    """What the stack says in the midst of ``work``."""
    found: list[tuple[str, str] | None] = []

    def look() -> None:
        frame: FrameType | None = sys._getframe(1)
        assert frame is not None
        found.append(kind_and_line(frame, CallSite(str(Path(__file__).parent))))

    work(look)
    return found[0]


def plain(look: Callable[[], None]) -> None:
    look()


def evaluation(look: Callable[[], None]) -> None:
    with torch.no_grad():
        Looking(look)(torch.zeros(1))


def saving(look: Callable[[], None]) -> None:
    torch.save(Collected(look), io.BytesIO())


@pytest.mark.parametrize(
    ("work", "kind"), [(plain, "other"), (evaluation, "evaluation"), (saving, "saving")]
)
def test_the_kind_follows_from_who_is_on_the_stack(
    work: Callable[[Callable[[], None]], object], kind: str
) -> None:
    known = seen(work)
    assert known is not None
    assert known[0] == kind
    assert known[1].startswith(f"{__file__.rsplit('/', 1)[1]}:")


def test_a_line_that_collects_says_so() -> None:
    garbage: list[object] = []
    found: list[tuple[str, str] | None] = []

    def look() -> None:
        frame = sys._getframe(2)
        found.append(kind_and_line(frame, CallSite(str(Path(__file__).parent))))

    garbage.append(Collected(look))
    garbage.append(garbage)
    del garbage
    gc.collect()

    assert found
    assert found[0] is not None
    assert found[0][0] == "collection"


def test_only_a_late_step_is_looked_at() -> None:
    pulse = Pulse([0.0] * 10)
    steps = [0]
    late = LateSteps(3, pulse, CallSite(str(Path(__file__).parent)), lambda: steps[0])
    late.start()
    for _ in range(30):  # three looks' time of short steps
        steps[0] += 1
        time.sleep(LOOK_EVERY_S / 10)
    assert not late.found()
    time.sleep(4 * LOOK_EVERY_S)
    late.stop()
    found = late.found()

    assert [(one.rank, one.step, one.kind) for one in found] == [(3, 30, "other")]


@pytest.mark.parametrize("cell", ["in_backward", "stepping"])
def test_a_long_backward_or_update_is_not_looked_at(cell: str) -> None:
    pulse = Pulse([0.0] * 10)
    setattr(pulse, cell, True)
    late = LateSteps(0, pulse, CallSite(str(Path(__file__).parent)), lambda: 5)
    late.start()
    time.sleep(4 * LOOK_EVERY_S)
    late.stop()
    assert not late.found()
