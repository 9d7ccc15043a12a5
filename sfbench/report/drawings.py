"""The report's figures with captions and tables, and in words for those who do not see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from sfbench.analyze.losses import told_losses
from sfbench.analyze.parts import PARTS
from sfbench.common import units
from sfbench.common.schema import Point, StepQuantiles, SweepResult
from sfbench.report import figures, figures_of_parts
from sfbench.report.svg import to_svg

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Of the step times in the table below their figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The numbers behind a figure."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """The first cell of each names the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureView:
    """A drawing with its caption and its numbers."""

    title: str
    svg: Markup
    caption: str
    grid: Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure before it becomes text."""

    name: str
    title: str
    caption: str
    figure: Figure
    grid: Grid


def drawings(drawn: Iterable[Drawing], result: SweepResult, key: str) -> tuple[FigureView, ...]:
    """Figures as SVG; ``key`` is unique on the page."""
    said = [
        *(["Emulated accelerator."] if result.emulated else []),
        *(["Oversubscribed: devices share cores."] if _crowded(result) else []),
    ]
    views = []
    for drawing in drawn:
        caption = " ".join([drawing.caption, *said])
        svg = to_svg(
            drawing.figure,
            key=f"{key}-{drawing.name}",
            title=drawing.title,
            description=f"{caption} {_in_words(result)}",
        )
        views.append(FigureView(title=drawing.title, svg=svg, caption=caption, grid=drawing.grid))
    return tuple(views)


def where_time_goes(result: SweepResult) -> Iterator[Drawing]:
    """From ideal to achieved at the largest count, and the parts of the step at all counts."""
    yield from _waterfall(result)
    if any(p.time_share is not None for p in result.points):
        yield Drawing(
            name="shares",
            title="Where each step goes",
            caption="Parts of the step time, measured by switching their causes off.",
            figure=figures_of_parts.step_parts(result),
            grid=_shares_grid(result),
        )


def distributions(result: SweepResult) -> Iterator[Drawing]:
    """Rates, efficiencies and step times."""
    measured = [p for p in result.points if p.samples_per_s is not None]
    if measured:
        yield Drawing(
            name="throughput",
            title="Throughput",
            caption="Samples per second of the whole job, with 95% intervals, against ideal "
            "scaling.",
            figure=figures.throughput(result),
            grid=_rates_grid(measured),
        )
    if any(p.efficiency is not None for p in result.points):
        yield Drawing(
            name="efficiency",
            title="Scaling efficiency",
            caption="Part of the ideal that is reached, with 95% intervals.",
            figure=figures.efficiencies(result),
            grid=_efficiencies_grid(measured),
        )
    if any(p.step_quantiles is not None for p in result.points):
        yield Drawing(
            name="steps",
            title="Step time",
            caption="Spread of single steps on all ranks: line 1 to 99%, pale bar 5 to 95%, "
            "dark bar the middle half, mark the median. Lines that run off the edge go further.",
            figure=figures.step_times(result),
            grid=_steps_grid(result),
        )


def _waterfall(result: SweepResult) -> Iterator[Drawing]:
    one = next((p for p in result.points if p.devices == 1), None)
    known = [p for p in result.points if p.efficiency is not None and p.devices > 1]
    shown = max(known, key=lambda p: p.devices, default=None)
    if one is None or shown is None:
        return
    yield Drawing(
        name="waterfall",
        title=f"From ideal to achieved at {figures.device_count(shown)}",
        caption="Efficiency points that each part of the step costs against 1 device.",
        figure=figures_of_parts.waterfall(shown, one),
        grid=_losses_grid(shown, one),
    )


def _losses_grid(point: Point, one: Point) -> Grid:
    rows = [("ideal", "100%")]
    found = told_losses(point, one)
    told = found.told if found is not None else ()
    rows += [(loss.part.label, f"{units.points(-loss.lost.value)} points") for loss in told]
    if found is None:
        rows.append(("lost, not told apart", units.MISSING))
    elif found.untold:
        names = units.listed([part.label for part in found.untold])
        rows.append((f"not told apart: {names}", f"{units.points(-found.rest)} points"))
    rows.append(("achieved", units.percent_interval(point.efficiency)))
    return Grid(columns=("part of the step", "efficiency"), rows=tuple(rows))


def _shares_grid(result: SweepResult) -> Grid:
    rows = [
        (
            str(p.devices),
            *(units.share(p.time_share.of(part.id)) for part in PARTS),
        )
        for p in result.points
        if p.time_share is not None
    ]
    return Grid(columns=("devices", *(part.label for part in PARTS)), rows=tuple(rows))


def _rates_grid(points: list[Point]) -> Grid:
    rows = [
        (str(p.devices), units.rate_interval(p.samples_per_s), units.rate(p.ideal_samples_per_s))
        for p in points
    ]
    return Grid(columns=("devices", "samples/s", "ideal"), rows=tuple(rows))


def _efficiencies_grid(points: list[Point]) -> Grid:
    rows = [
        (
            str(p.devices),
            units.percent_interval(p.efficiency),
            units.percent(p.best_possible_efficiency),
        )
        for p in points
    ]
    return Grid(columns=("devices", "efficiency", "most that shared cores allow"), rows=tuple(rows))


def _steps_grid(result: SweepResult) -> Grid:
    rows = [
        (str(p.devices), *_quantiles(p.step_quantiles))
        for p in result.points
        if p.step_quantiles is not None
    ]
    names = (f"{100 * q:.0f}%" for q in QUANTILES)
    return Grid(columns=("devices", *names), rows=tuple(rows))


def _quantiles(quantiles: StepQuantiles) -> Iterator[str]:
    for value in np.interp(QUANTILES, quantiles.q, quantiles.step_s):
        yield units.seconds(float(value))


def _crowded(result: SweepResult) -> bool:
    return any(p.oversubscribed for p in result.points)


def _in_words(result: SweepResult) -> str:
    return " ".join(figures.in_words(point) for point in result.points)
