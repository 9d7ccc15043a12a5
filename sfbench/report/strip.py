"""A strip of the timeline: a few steps of all ranks side by side, around the largest stall."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sfbench.common import units
from sfbench.common.schema import Point, Stretch, StretchPart, SweepResult
from sfbench.report.drawings import Drawing, Grid
from sfbench.report.figures import in_style
from sfbench.report.svg import COLOURS

SHOWN: dict[StretchPart, tuple[str, str, float]] = {
    "data": ("waiting for data", "data", 1.0),
    "forward": ("forward", "compute", 1.0),
    "backward": ("backward and waiting for others", "compute", 0.4),
    "update": ("update", "host", 1.0),
    "stall": ("stall", "stalls", 1.0),
    "between": ("between steps", "muted", 0.5),
    "other": ("evaluation or saving", "bad", 1.0),
}
"""Name of a part, its colour, its opacity."""
BAR = 0.7


def timeline_strip(result: SweepResult) -> Iterator[Drawing]:
    """At the largest device count that has one."""
    last = next((p for p in reversed(result.points) if p.stretch is not None), None)
    if last is None or last.stretch is None:
        return
    yield Drawing(
        name="timeline",
        title=f"A few steps at {_devices(last)}",
        caption="Ranks over time around the largest stall, or else at the start, as each rank's "
        "host saw them. `sfbench report --timeline FILE` writes the whole launch.",
        figure=_figure(last.stretch),
        grid=_grid(last.stretch),
    )


def _figure(shown: Stretch) -> Figure:
    ranks = sorted(set(shown.rank))

    def draw(axes: Axes) -> None:
        for part, (name, colour, opacity) in SHOWN.items():
            for place, rank in enumerate(ranks):
                spans = [(1e3 * a, 1e3 * (b - a)) for a, b in _spans(shown, rank, part)]
                if spans:
                    axes.broken_barh(
                        spans,
                        (place - BAR / 2, BAR),
                        facecolor=COLOURS[colour],
                        alpha=opacity,
                        linewidth=0,
                        label=name if name not in axes.get_legend_handles_labels()[1] else "_",
                    )
        axes.set_yticks(range(len(ranks)), [f"rank {r}" for r in ranks], color=COLOURS["ink"])
        axes.set_ylim(len(ranks) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.set_xlabel("ms")
        axes.spines["left"].set_visible(False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3, handlelength=1.0)

    return in_style(draw, rows=0.55 * len(ranks) + 3.0)


def _grid(shown: Stretch) -> Grid:
    """Seconds of each part, by rank."""
    ranks = sorted(set(shown.rank))
    parts = [part for part in SHOWN if part in shown.part]
    rows = [
        (str(rank), *(units.seconds(sum(b - a for a, b in _spans(shown, rank, p))) for p in parts))
        for rank in ranks
    ]
    return Grid(columns=("rank", *(SHOWN[part][0] for part in parts)), rows=tuple(rows))


def _spans(shown: Stretch, rank: int, part: StretchPart) -> list[tuple[float, float]]:
    return [
        (began, ended)
        for who, what, began, ended in zip(
            shown.rank, shown.part, shown.began_s, shown.ended_s, strict=True
        )
        if who == rank and what == part
    ]


def _devices(point: Point) -> str:
    return units.things(point.devices, "device")
