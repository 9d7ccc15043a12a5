"""Drawings of the parts of a step: where each step goes, and from ideal to achieved."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, PercentFormatter

from sfbench.analyze.losses import Loss, told_losses
from sfbench.analyze.parts import PARTS, Part
from sfbench.common import units
from sfbench.common.schema import Point, SweepResult, TimeShare
from sfbench.report.figures import device_count, in_style, label_rows
from sfbench.report.result_rows import is_unknown
from sfbench.report.sentences import MENTIONED
from sfbench.report.svg import COLOURS

FAR = 1.3
"""Efficiency beyond which a quarter on the axis is too narrow for its number."""
UNKNOWN_PARTS = "not told apart"
"""What a hatched bar means."""
LABELLED = 0.07
"""A bar narrower than this part of the axis has no room for its number."""


def step_parts(result: SweepResult) -> Figure:
    """Where each step goes: a bar of time shares per device count; hatched where not known."""
    points = [p for p in result.points if p.status == "ok"]
    shares = [p.time_share for p in points if p.time_share]
    parts = [p for p in PARTS if any(_told(s, p) >= MENTIONED for s in shares)]

    def draw(axes: Axes) -> None:
        for row, point in enumerate(points):
            if point.time_share is None:
                hatched(axes, row, 0.0, 1.0, label=UNKNOWN_PARTS)
            else:
                _stacked(axes, row, point.time_share, parts)
        label_rows(axes, [device_count(p) for p in points])
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        handles, labels = axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        axes.legend(
            list(unique.values()),
            list(unique),
            loc="lower center",
            bbox_to_anchor=(0.45, 1.0),
            ncols=3,
            handlelength=1.0,
            handleheight=1.0,
            columnspacing=1.2,
        )

    return in_style(draw, rows=len(points) + 2)


def _stacked(axes: Axes, row: int, shares: TimeShare, parts: Sequence[Part]) -> None:
    left = 0.0
    for part in parts:
        width = _told(shares, part)
        _bar(axes, row, left, width, part)
        left += width
    # Where a part was not measured, or is no figure, what is left is known as a whole only.
    vague = any(shares.of(part.id).value is None for part in PARTS if not part.column_from)
    if vague or is_unknown(shares):
        hatched(axes, row, left, max(1.0 - left, 0.0), label=UNKNOWN_PARTS)


def _told(shares: TimeShare, part: Part) -> float:
    """A share as it is drawn: 0 if it is no figure."""
    share = shares.of(part.id)
    return max(share.value or 0.0, 0.0) if units.is_known(share) else 0.0


def waterfall(point: Point, one: Point) -> Figure:
    """From ideal to achieved at one device count; one hatched fall for what is not told apart."""
    assert point.efficiency is not None
    efficiency = point.efficiency.value
    found = told_losses(point, one)
    named = [loss for loss in (found.told if found else ()) if abs(loss.lost.value) >= MENTIONED]
    steps = sorted(named, key=lambda loss: -loss.lost.value)
    hatched = found is None or bool(found.untold)
    labels = [*(loss.part.label for loss in steps), *([UNKNOWN_PARTS] if hatched else [])]

    def draw(axes: Axes) -> None:
        last = len(labels) + 1
        _wide_bar(axes, 0, 0.0, 1.0, COLOURS["muted"])
        _label(axes, 0, 1.0, "100%")
        left = max(_falls(axes, steps), efficiency)
        if hatched:
            _hatched_fall(axes, last - 1, found.rest if found else 1.0 - efficiency, efficiency)
        _wide_bar(axes, last, 0.0, efficiency, COLOURS["accent"])
        _label(axes, last, efficiency, units.percent_interval(point.efficiency))
        label_rows(axes, ["ideal", *labels, "achieved"])
        axes.set_xlim(0, left * 1.2)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.xaxis.set_major_locator(MultipleLocator(0.25 if left <= FAR else 0.5))
        axes.set_xlabel("efficiency")

    return in_style(draw, rows=len(labels) + 2)


def _hatched_fall(axes: Axes, row: int, lost: float, efficiency: float) -> None:
    """What parts that are no figures lose together: it ends at what is achieved."""
    low, high = sorted((efficiency, efficiency + lost))
    hatched(axes, row, low, high - low, label="_")
    _label(axes, row, high, f"{'+' if lost < 0 else ''}{units.points(-lost)}")


def _falls(axes: Axes, steps: Sequence[Loss]) -> float:
    """Draw each loss where the one before left off; returns the furthest place reached."""
    at, furthest = 1.0, 1.0
    for row, loss in enumerate(steps, start=1):
        low, high = sorted((at, at - loss.lost.value))
        _wide_bar(axes, row, low, high - low, COLOURS[loss.part.id])
        sign = "+" if loss.lost.value < 0 else ""
        _label(axes, row, high, f"{sign}{units.points(-loss.lost.value)}")
        at -= loss.lost.value
        furthest = max(furthest, high)
    return furthest


def _bar(axes: Axes, row: int, left: float, width: float, part: Part) -> None:
    axes.barh(
        row,
        width,
        left=left,
        height=0.66,
        color=COLOURS[part.id],
        edgecolor=COLOURS["ground"],
        linewidth=0.8,
        label=part.label,
    )
    if width >= LABELLED:
        axes.annotate(
            units.percent(width),
            (left + width / 2, row),
            ha="center",
            va="center",
            color=COLOURS["ground"],
        )


def hatched(axes: Axes, row: int, left: float, width: float, label: str) -> None:
    """A stretch that is known as a whole only."""
    axes.barh(
        row,
        width,
        left=left,
        height=0.66,
        facecolor="none",
        edgecolor=COLOURS["muted"],
        hatch="////",
        linewidth=0.8,
        label=label,
    )


def _wide_bar(axes: Axes, row: int, left: float, width: float, colour: str) -> None:
    axes.barh(row, width, left=left, height=0.66, color=colour, linewidth=0)


def _label(axes: Axes, row: int, right: float, text: str) -> None:
    axes.annotate(
        text, (right, row), xytext=(4, 0), textcoords="offset points", ha="left", va="center"
    )
