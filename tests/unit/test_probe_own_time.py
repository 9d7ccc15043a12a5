"""What of a step is the script's own time between its forward and its update."""

from __future__ import annotations

import pytest

from sfbench.probe.hooks.events import Met, Update
from sfbench.probe.loop.own_time import OwnInside, Span, inside

BETWEEN = Span(0.0, 1.0)
UPDATE = Update("opt", 10.0, 11.0, 11.0, backward_began=5.0, backward_ended=7.0)


def test_before_the_backward_and_after_it() -> None:
    assert inside(BETWEEN, 4.0, UPDATE) == OwnInside(1.0, 3.0, 0.0)


@pytest.mark.parametrize("forward_ended", [0.0, 6.0])
def test_without_a_backward_after_the_forward_nothing_is_known(forward_ended: float) -> None:
    assert inside(BETWEEN, forward_ended, UPDATE) == OwnInside()


def test_a_backward_inside_the_update_leaves_nothing_behind_it() -> None:
    closure = UPDATE._replace(began=7.0)
    assert inside(BETWEEN, 4.0, closure).after_backward_s == 0.0


def test_own_collectives_count_outside_of_forward_and_backward() -> None:
    met = [Met(0.5, 0.75), Met(2.0, 3.0), Met(5.5, 6.5), Met(8.0, 9.5)]
    assert inside(BETWEEN, 4.0, UPDATE, met).met_s == pytest.approx(0.25 + 1.5)
