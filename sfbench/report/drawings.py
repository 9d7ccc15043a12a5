"""The report's figures with their captions, and in words for those who do not see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.figure import Figure

from sfbench.common import units
from sfbench.common.schema import Point, SweepResult
from sfbench.report import figures
from sfbench.report.result_rows import is_unknown, worst_point
from sfbench.report.svg import to_svg


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureView:
    """A drawing with its caption."""

    title: str
    svg: Markup
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    name: str
    title: str
    caption: str
    figure: Figure


def drawings(result: SweepResult, key: str) -> tuple[FigureView, ...]:
    """Each figure that there is something to draw for; ``key`` is unique on the page."""
    said = [
        *(["Emulated accelerator."] if result.emulated else []),
        *(["Oversubscribed: devices share cores."] if _crowded(result) else []),
    ]
    views = []
    for drawing in _drawings(result):
        caption = " ".join([drawing.caption, *said])
        svg = to_svg(
            drawing.figure,
            key=f"{key}-{drawing.name}",
            title=drawing.title,
            description=f"{caption} {_in_words(result)}",
        )
        views.append(FigureView(title=drawing.title, svg=svg, caption=caption))
    return tuple(views)


def _drawings(result: SweepResult) -> Iterator[_Drawing]:
    if all(p.samples_per_s is None for p in result.points):
        return
    yield _Drawing(
        name="throughput",
        title="Throughput",
        caption="Samples per second of the whole job, with 95% intervals, against ideal scaling.",
        figure=figures.throughput(result),
    )
    if any(p.efficiency is not None for p in result.points):
        yield _Drawing(
            name="efficiency",
            title="Scaling efficiency",
            caption="Share of the ideal that is reached, with 95% intervals.",
            figure=figures.efficiencies(result),
        )
    if any(p.time_share is not None and not is_unknown(p.time_share) for p in result.points):
        yield _Drawing(
            name="shares",
            title="Where each step goes",
            caption="Parts of the step time, measured by switching their causes off.",
            figure=figures.step_parts(result),
        )
    yield from _waterfall(result)
    if any(p.step_quantiles is not None for p in result.points):
        yield _Drawing(
            name="steps",
            title="Step time",
            caption="Spread of single steps on all ranks: line 1 to 99%, pale bar 5 to 95%, "
            "dark bar the middle half, mark the median. Lines that run off the edge go further.",
            figure=figures.step_times(result),
        )


def _waterfall(result: SweepResult) -> Iterator[_Drawing]:
    """Of the point that is looked at, else of the largest."""
    one = next((p for p in result.points if p.devices == 1), None)
    known = [p for p in result.points if p.efficiency is not None and p.devices > 1]
    shown = worst_point(result) or (known[-1] if known else None)
    figure = figures.waterfall(shown, one) if one is not None and shown is not None else None
    if figure is not None and shown is not None:
        yield _Drawing(
            name="waterfall",
            title=f"From ideal to achieved at {shown.devices} devices",
            caption="Efficiency points that each part of the step costs against 1 device.",
            figure=figure,
        )


def _crowded(result: SweepResult) -> bool:
    return any(p.oversubscribed for p in result.points)


def _in_words(result: SweepResult) -> str:
    return " ".join(_point_in_words(point) for point in result.points)


def _point_in_words(point: Point) -> str:
    count = "1 device" if point.devices == 1 else f"{point.devices} devices"
    if point.status != "ok":
        return f"{count}: {'hung' if point.status == 'timeout' else 'failed'}."
    return (
        f"{count}: {units.rate_interval(point.samples_per_s)} samples/s, "
        f"efficiency {units.percent_interval(point.efficiency)}, "
        f"step {units.seconds_interval(point.step_s)}."
    )
