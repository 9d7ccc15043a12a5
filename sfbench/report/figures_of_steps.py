"""Figures of single steps and of what was tried beside the job: batch sizes, links, ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from sfbench.common import units
from sfbench.common.schema import Beginning, Interval, OwnSteps, Point, Stall
from sfbench.report.figures import (
    device_count,
    draw_line,
    hover,
    in_style,
    label_rows,
)
from sfbench.report.figures_of_parts import hatched
from sfbench.report.svg import COLOURS

SLOWER: tuple[tuple[float, float, str], ...] = (
    (0.05, 0.10, "within 5%"),
    (0.15, 0.35, "to 15% slower"),
    (0.30, 0.65, "to 30% slower"),
    (float("inf"), 1.0, "slower yet"),
)
"""Classes of the strip: slower than the median by at most this ratio, its opacity, its name."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""A line is told from another by its marker, not by its colour."""


def batch_sizes(point: Point) -> Figure:
    """Step time of one device against its batch."""

    def draw(axes: Axes) -> None:
        times = point.batch_times
        draw_line(axes, [t.samples for t in times], [t.step_s for t in times], scale=1e3)
        axes.set_xlabel("samples per step")
        axes.set_ylabel("step time at 1 device, ms")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.set_xticks([t.samples for t in times], [units.count(t.samples) for t in times])
        axes.yaxis.set_major_locator(MaxNLocator(5))

    return in_style(draw)


def all_reduce(points: Sequence[Point]) -> Figure:
    """Time of an all-reduce against its size, a line for each device count."""

    def draw(axes: Axes) -> None:
        for point, marker in zip(points, MARKERS, strict=False):
            axes.plot(
                [t.bytes for t in point.all_reduce],
                [1e3 * t.seconds for t in point.all_reduce],
                color=COLOURS["accent"],
                marker=marker,
                markersize=4.5,
                linewidth=1.2,
                label=device_count(point),
            )
            for one in point.all_reduce:
                took = f"{units.bytes_(one.bytes)}: {units.seconds(one.seconds)}"
                hover(axes, one.bytes, 1e3 * one.seconds, f"{device_count(point)}, {took}")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _round_bytes(value)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("bytes reduced")
        axes.set_ylabel("time, ms")
        axes.legend(loc="upper left", handlelength=2.2)

    return in_style(draw)


def _round_bytes(value: float) -> str:
    """``16 KiB``: places on the axis are powers of two."""
    return re.sub(r"\.0+ ", " ", units.bytes_(value))


def stalls(found: Sequence[Stall], labels: Sequence[str]) -> Figure:
    """What each stall costs a step of the job, the dearest first."""

    def draw(axes: Axes) -> None:
        for row, stall in enumerate(found):
            cost = stall.per_step_s
            high = cost.value if cost.high is None else cost.high
            _stall(axes, row, cost)
            axes.annotate(
                units.seconds_interval(cost),
                (1e3 * max(high, cost.value), row),
                xytext=(4, 0),
                textcoords="offset points",
                ha="left",
                va="center",
            )
        label_rows(axes, labels)
        axes.set_xlim(
            0, 1.35e3 * max(max(s.per_step_s.high or 0, s.per_step_s.value) for s in found)
        )
        axes.set_xlabel("costs each step on average, ms")
        axes.xaxis.set_major_locator(MaxNLocator(5))

    return in_style(draw, rows=len(found))


def _stall(axes: Axes, row: int, cost: Interval) -> None:
    """A bar with its interval; hatched without one."""
    if cost.low is None or cost.high is None:
        hatched(axes, row, 0.0, 1e3 * cost.value, label="_")
        return
    axes.barh(row, 1e3 * cost.value, height=0.66, color=COLOURS["stalls"], linewidth=0)
    low_s = max(0.0, cost.low)
    axes.hlines(row, 1e3 * low_s, 1e3 * cost.high, color=COLOURS["ink"], linewidth=1.2)


def first_steps(beginning: Beginning) -> Figure:
    """The first steps, and the cut behind which they count."""

    def draw(axes: Axes) -> None:
        times_ms = [1e3 * value for value in beginning.step_s]
        axes.plot(range(1, len(times_ms) + 1), times_ms, color=COLOURS["accent"], linewidth=1.4)
        cut = beginning.warmup_steps + 0.5
        if beginning.warmup_steps:
            axes.axvspan(0.5, cut, color=COLOURS["line"], alpha=0.5, linewidth=0)
            axes.axvline(cut, color=COLOURS["muted"], linestyle=(0, (4, 3)), linewidth=1.2)
            before = 2 * cut > len(times_ms)
            axes.annotate(
                "warmup, left out" if before else "measured from here",
                (cut, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(-4 if before else 4, -2),
                textcoords="offset points",
                ha="right" if before else "left",
                va="top",
                color=COLOURS["muted"],
            )
        axes.set_xlim(0.5, len(times_ms) + 0.5)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("step of the first launch")
        axes.set_ylabel("step time, ms")

    return in_style(draw)


def rank_strip(own: OwnSteps, labels: Sequence[str]) -> Figure:
    """A row for each rank, a cell for each stretch of the sweep; the darker the slower."""
    cells = np.array([[np.nan if v is None else v for v in row] for row in own.step_s])
    ratio = cells / np.nanmedian(cells) - 1

    def draw(axes: Axes) -> None:
        lower = -np.inf
        for most, opacity, name in SLOWER:
            inside = (ratio > lower) & (ratio <= most)
            _cells(axes, inside, opacity, name)
            lower = most
        axes.set_yticks(range(len(labels)), labels, color=COLOURS["ink"])
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlim(0, cells.shape[1])
        axes.set_xticks([0, cells.shape[1]], ["start", "end of the sweep"])
        for place, side in enumerate(axes.get_xticklabels()):
            side.set_horizontalalignment("right" if place else "left")
        axes.spines["left"].set_visible(False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, handlelength=1.0)

    return in_style(draw, rows=0.55 * len(labels) + 2.5)


def _cells(
    axes: Axes, inside: np.ndarray[tuple[int, int], np.dtype[np.bool_]], opacity: float, name: str
) -> None:
    """All cells of one class as one path: a page of 512 ranks stays small."""
    corners = np.array([(0, -0.42), (0.92, -0.42), (0.92, 0.42), (0, 0.42), (0, 0)])
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    places = [(column, row) for row, column in np.argwhere(inside)]
    if not places:
        return
    vertices = np.concatenate([corners + place for place in places])
    path = Path(vertices, codes * len(places))
    axes.add_patch(
        PathPatch(path, facecolor=COLOURS["bad"], alpha=opacity, linewidth=0, label=name)
    )
