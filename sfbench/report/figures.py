"""What the report draws. A SweepResult in, a matplotlib figure out; no pyplot, no global state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from sfbench.common import units
from sfbench.common.schema import Interval, Point, StepQuantiles, SweepResult
from sfbench.report.svg import COLOURS, HOVER, STYLE

WIDTH_IN, HEIGHT_IN = 4.8, 3.1
ROW_IN = 0.34
"""Height of one horizontal bar."""
OUTLIERS = 2.0
"""The axis of step times ends at this many times the largest 95 % quantile."""


def throughput(result: SweepResult) -> Figure:
    """samples/s against devices, with intervals, and the ideal line."""

    def draw(axes: Axes) -> None:
        points = _measured(result)
        counts = [p.devices for p in points]
        ideal = [p for p in points if p.ideal_samples_per_s is not None]
        axes.plot(
            [p.devices for p in ideal],
            [p.ideal_samples_per_s or 0.0 for p in ideal],
            linestyle=(0, (4, 3)),
            color=COLOURS["muted"],
            linewidth=1.2,
            label="ideal",
        )
        draw_line(axes, counts, [p.samples_per_s for p in points], "measured")
        for point in points:
            if point.samples_per_s is not None:
                hover(axes, point.devices, point.samples_per_s.value, in_words(point))
        _failed_marks(axes, result, [p.devices for p in result.points])
        axes.set_ylabel("samples/s")
        axes.set_xlabel("devices")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.set_xticks([p.devices for p in result.points])
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.legend(loc="upper left", handlelength=2.2)

    return in_style(draw)


def efficiencies(result: SweepResult) -> Figure:
    """Efficiency against devices, with intervals; the most that shared cores allow, where so."""

    def draw(axes: Axes) -> None:
        places = {p.devices: i for i, p in enumerate(result.points)}
        points = [p for p in result.points if p.efficiency is not None]
        axes.axhline(1.0, color=COLOURS["muted"], linestyle=(0, (4, 3)), linewidth=1.2)
        draw_line(axes, [places[p.devices] for p in points], [p.efficiency for p in points], "_")
        for point in points:
            _efficiency_label(axes, point, places[point.devices])
            hover(axes, places[point.devices], _middle(point.efficiency), in_words(point))
        _limits(axes, points, places)
        _failed_marks(axes, result, list(places.values()))
        axes.set_xticks(list(places.values()), [str(n) for n in places])
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_ylim(0, 1.05 * max([1.0, *(_top(p.efficiency) for p in points)]))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("devices")

    return in_style(draw)


def step_times(result: SweepResult) -> Figure:
    """Distribution of step time per device count: 1 to 99 %, quartiles and median."""

    def draw(axes: Axes) -> None:
        points = [p for p in result.points if p.step_quantiles is not None]
        for row, point in enumerate(points):
            if point.step_quantiles is not None:
                _spread(axes, row, point.step_quantiles)
        label_rows(axes, [device_count(p) for p in points])
        axes.set_xlim(*_step_range([p.step_quantiles for p in points if p.step_quantiles]))
        axes.set_xlabel("step time, ms")
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.grid(axis="x")

    return in_style(draw, rows=sum(p.step_quantiles is not None for p in result.points))


def in_style(draw: Callable[[Axes], None], rows: float | None = None) -> Figure:
    """An empty figure in the report's style, drawn on; ``rows``: as high as so many bars need."""
    height = HEIGHT_IN if rows is None else max(1.3, 0.75 + ROW_IN * rows)
    with rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDTH_IN, height), layout="constrained")
        axes = figure.subplots()
        if rows is None:
            axes.grid(axis="y")
        draw(axes)
        axes.tick_params(length=0)
    return figure


def _measured(result: SweepResult) -> list[Point]:
    return [p for p in result.points if p.samples_per_s is not None]


def draw_line(
    axes: Axes,
    places: Sequence[float],
    values: Sequence[Interval | None],
    label: str = "_",
    scale: float = 1.0,
) -> None:
    """Estimates with their intervals, joined by a line; hollow without an interval."""
    known = [(x, v) for x, v in zip(places, values, strict=True) if v is not None]
    middle = [scale * v.value for _, v in known]
    below = [scale * (v.value - v.low) if v.low is not None else 0.0 for _, v in known]
    above = [scale * (v.high - v.value) if v.high is not None else 0.0 for _, v in known]
    axes.errorbar(
        [x for x, _ in known],
        middle,
        yerr=np.array([below, above]),
        color=COLOURS["accent"],
        marker="o",
        markersize=4.5,
        linewidth=1.6,
        elinewidth=1.2,
        capsize=3,
        label=label,
    )
    bare = [(x, scale * v.value) for x, v in known if v.low is None or v.high is None]
    axes.plot(
        [x for x, _ in bare],
        [y for _, y in bare],
        "o",
        markersize=4.5,
        markerfacecolor=COLOURS["ground"],
        markeredgecolor=COLOURS["accent"],
        label="_",
    )


def hover(axes: Axes, x: float, y: float, text: str) -> None:
    """A place that tells its figures under the pointer: unseen, and wide enough to be hit."""
    colour = COLOURS["accent"]
    axes.plot([x], [y], "o", markersize=16, color=colour, alpha=0.0, gid=HOVER + text, label="_")


def in_words(point: Point) -> str:
    """A device count with its figures, for those who do not see the drawing, and on hovering."""
    count = device_count(point)
    if point.status != "ok":
        return f"{count}: {'hung' if point.status == 'timeout' else 'failed'}."
    return (
        f"{count}: {units.rate_interval(point.samples_per_s)} samples/s, "
        f"efficiency {units.percent_interval(point.efficiency)}, "
        f"step {units.seconds_interval(point.step_s)}."
    )


def _middle(interval: Interval | None) -> float:
    return interval.value if interval is not None else 0.0


def _efficiency_label(axes: Axes, point: Point, place: float) -> None:
    if point.efficiency is None:
        return
    low = point.efficiency.value if point.efficiency.low is None else point.efficiency.low
    axes.annotate(
        units.percent_interval(point.efficiency),
        (place, low),
        xytext=(0, -6),
        textcoords="offset points",
        ha="center",
        va="top",
    )


def _top(interval: Interval | None) -> float:
    if interval is None:
        return 0.0
    return interval.value if interval.high is None else interval.high


def _limits(axes: Axes, points: Sequence[Point], places: Mapping[int, int]) -> None:
    """Short lines at the most that is possible where devices share cores."""
    label = "most that shared cores allow"
    for point in points:
        if point.best_possible_efficiency is not None:
            at = places[point.devices]
            axes.hlines(
                point.best_possible_efficiency,
                at - 0.3,
                at + 0.3,
                color=COLOURS["bad"],
                linewidth=1.8,
                label=label,
            )
            label = "_"  # matplotlib leaves it out of the legend
    if label == "_":
        axes.legend(loc="lower left", handlelength=1.6)


def _failed_marks(axes: Axes, result: SweepResult, places: Sequence[float]) -> None:
    for point, place in zip(result.points, places, strict=True):
        if point.status != "ok":
            word = "hung" if point.status == "timeout" else "failed"
            axes.annotate(
                f"× {word}",
                (place, 0),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                va="bottom",
                color=COLOURS["bad"],
            )


def _spread(axes: Axes, row: int, quantiles: StepQuantiles) -> None:
    at = np.interp([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99], quantiles.q, quantiles.step_s) * 1e3
    accent = COLOURS["accent"]
    axes.hlines(row, at[0], at[6], color=accent, linewidth=1.0)
    axes.hlines(row, at[1], at[5], color=accent, linewidth=5.0, alpha=0.35)
    axes.hlines(row, at[2], at[4], color=accent, linewidth=9.0)
    axes.vlines(at[3], row - 0.26, row + 0.26, color=COLOURS["ink"], linewidth=1.6)


def _step_range(quantiles: Sequence[StepQuantiles]) -> tuple[float, float]:
    """Ends of the axis in ms: all lines, but single steps of many times the length run off it."""
    low = min(float(np.interp(0.01, q.q, q.step_s)) for q in quantiles)
    high = max(float(np.interp(0.99, q.q, q.step_s)) for q in quantiles)
    usual = max(float(np.interp(0.95, q.q, q.step_s)) for q in quantiles)
    right = min(high, OUTLIERS * usual)
    margin = 0.04 * (right - low) or 0.04 * right
    return 1e3 * (low - margin), 1e3 * (right + margin)


def label_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Name the rows of horizontal bars, the first one on top."""
    axes.set_yticks(range(len(labels)), labels, color=COLOURS["ink"])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)


def device_count(point: Point) -> str:
    """``8 devices``."""
    return units.things(point.devices, "device")
