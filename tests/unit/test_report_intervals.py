"""Drawings of what has no interval: it does not look like what is certain."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from sfbench.common.schema import Interval
from sfbench.report.figures import draw_line
from sfbench.report.svg import COLOURS

SURE = Interval(value=0.9, low=0.8, high=1.0)
BARE = Interval(value=0.5, low=None, high=None)


def axes_of(*values: Interval) -> Axes:
    axes = Figure().subplots()
    draw_line(axes, range(len(values)), values)
    return axes


def test_an_estimate_without_an_interval_is_hollow() -> None:
    # GIVEN / WHEN
    axes = axes_of(SURE, BARE)
    # THEN
    hollow = [
        line for line in axes.lines if to_hex(line.get_markerfacecolor()) == COLOURS["ground"]
    ]
    assert [list(line.get_ydata()) for line in hollow] == [[0.5]]


def test_what_is_known_is_not() -> None:
    assert [len(line.get_xdata()) for line in axes_of(SURE, SURE).lines][-1] == 0
