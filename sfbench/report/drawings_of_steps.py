"""Captions and tables of the figures of steps, and the memory beside the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sfbench.common import units
from sfbench.common.schema import OwnSteps, Point, Stall, SweepResult
from sfbench.report import figures_of_steps as figures
from sfbench.report.drawings import Drawing, Grid

MOST_STALLS = 8
"""Stalls that are drawn: the dearest."""
STALL_LABEL = 22
"""Characters beside a bar."""


def step_drawings(result: SweepResult) -> Iterator[Drawing]:
    """Warmup, each rank's own steps, batch sizes, all-reduce: those that were measured."""
    last = next((p for p in reversed(result.points) if p.beginning is not None), None)
    if last is not None:
        yield from _first_steps(last)
    own = next((p for p in reversed(result.points) if p.own_steps is not None), None)
    if own is not None:
        yield from _rank_strip(own)
    stopped = next((p for p in reversed(result.points) if p.stalls), None)
    if stopped is not None:
        yield _stalls(stopped)
    for point in result.points:
        if point.batch_times:
            yield _batch_sizes(point)
    reduced = [p for p in result.points if p.all_reduce]
    if reduced:
        yield _all_reduce(reduced)


def memory_grid(result: SweepResult) -> Grid | None:
    """The fullest device of each count, beside the batch; None if no device told."""
    rows = []
    for point in result.points:
        peaks = {r.rank: r.peak_memory_bytes for r in point.ranks if r.peak_memory_bytes}
        if peaks:
            fullest = max(peaks, key=lambda rank: peaks[rank] or 0)
            batch = point.batch_per_device
            rows.append(
                (
                    str(point.devices),
                    units.MISSING if batch is None else units.count(round(batch, 1)),
                    units.bytes_(peaks[fullest] or 0),
                    str(fullest),
                    units.bytes_(min(peak or 0 for peak in peaks.values())),
                )
            )
    columns = ("devices", "batch per device", "fullest device", "its rank", "emptiest device")
    return Grid(columns=columns, rows=tuple(rows)) if rows else None


def _first_steps(point: Point) -> Iterator[Drawing]:
    assert point.beginning is not None
    times, cut = point.beginning.step_s, point.beginning.warmup_steps
    if len(times) < 2:
        return
    rows = [
        (name, str(len(part)), units.seconds(min(part)), units.seconds(max(part)))
        for name, part in (("warmup", times[:cut]), ("after it", times[cut:]))
        if part
    ]
    yield Drawing(
        name="warmup",
        title=f"The first steps at {_devices(point)}",
        caption="Median step over ranks from the start of the first launch. "
        f"Warmup is {units.things(cut, 'step')}, kept apart, and counts in no figure.",
        figure=figures.first_steps(point.beginning),
        grid=Grid(columns=("steps", "shown", "shortest", "longest"), rows=tuple(rows)),
    )


def _rank_strip(point: Point) -> Iterator[Drawing]:
    own = point.own_steps
    assert own is not None
    if not any(value is not None for row in own.step_s for value in row):
        return
    labels = _row_labels(own, len(point.ranks) or point.devices)
    rows = [(label, *_row_figures(row)) for label, row in zip(labels, own.step_s, strict=True)]
    yield Drawing(
        name="ranks",
        title=f"Each rank's own steps at {_devices(point)}",
        caption="Step time without gradient sync, when no rank waits for another: a row for each "
        "rank, a cell for each stretch of the sweep, the darker the slower than the median.",
        figure=figures.rank_strip(own, labels),
        grid=Grid(columns=("rank", "mean", "slowest stretch"), rows=tuple(rows)),
    )


def _stalls(point: Point) -> Drawing:
    found = sorted(point.stalls, key=lambda s: -s.per_step_s.value)[:MOST_STALLS]
    rows = [
        (
            stall.line or "a line too short to be looked at",
            stall.kind.replace("-", " "),
            _how_often(stall),
            "all" if stall.rank is None else str(stall.rank),
            units.seconds_interval(stall.size_s),
            units.seconds_interval(stall.per_step_s),
        )
        for stall in found
    ]
    labels = [_stall_label(stall) for stall in found]
    outside = any(stall.kind in {"evaluation", "saving"} for stall in found)
    note = " Evaluation and saving stand outside of the step." if outside else ""
    return Drawing(
        name="stalls",
        title=f"What stops the loop at {_devices(point)}",
        caption="What comes again and again between ordinary steps, and what that costs each step "
        f"on average, with its 95% interval.{note}",
        figure=figures.stalls(found, labels),
        grid=Grid(
            columns=("line", "what", "how often", "rank", "one takes", "costs each step"),
            rows=tuple(rows),
        ),
    )


def _how_often(stall: Stall) -> str:
    if stall.per == "epoch":
        return "each epoch"
    if stall.per == "steps" and stall.period_steps is not None:
        return f"every {units.count(stall.period_steps)} steps"
    return f"irregular, seen {units.count(stall.times)} times"


def _stall_label(stall: Stall) -> str:
    """Short: it stands beside the bars. The table below has it whole."""
    name = stall.line or stall.kind
    return name if len(name) <= STALL_LABEL else f"…{name[1 - STALL_LABEL :]}"


def _row_labels(own: OwnSteps, ranks: int) -> list[str]:
    ends = [*own.first_rank[1:], ranks]
    return [
        f"rank {first}" if end - first <= 1 else f"{first} to {end - 1}"
        for first, end in zip(own.first_rank, ends, strict=True)
    ]


def _row_figures(row: Sequence[float | None]) -> tuple[str, str]:
    known = [value for value in row if value is not None]
    if not known:
        return (units.MISSING, units.MISSING)
    return (units.seconds(sum(known) / len(known)), units.seconds(max(known)))


def _batch_sizes(point: Point) -> Drawing:
    rows = [
        (
            units.count(t.samples),
            units.seconds_interval(t.step_s),
            units.rate(t.samples / t.step_s.value),
        )
        for t in point.batch_times
    ]
    return Drawing(
        name="batch",
        title="Step time over the batch",
        caption="One device at half, whole and double batch: where a line through them meets zero "
        "samples is what a step costs whatever the batch.",
        figure=figures.batch_sizes(point),
        grid=Grid(columns=("samples per step", "step", "samples/s"), rows=tuple(rows)),
    )


def _all_reduce(points: Sequence[Point]) -> Drawing:
    rows = [
        (
            str(p.devices),
            units.bytes_(t.bytes),
            units.seconds(t.seconds),
            f"{units.bytes_(_bus(p.devices, t.bytes, t.seconds))}/s",
        )
        for p in points
        for t in p.all_reduce
    ]
    return Drawing(
        name="allreduce",
        title="All-reduce by size",
        caption="The job's gradient buckets, reduced alone over its own group: nothing hides "
        "them. Bus bandwidth is 2 (N - 1) / N of the bytes by the time.",
        figure=figures.all_reduce(points),
        grid=Grid(columns=("devices", "size", "time", "bus bandwidth"), rows=tuple(rows)),
    )


def _bus(devices: int, size: int, seconds: float) -> float:
    return 2 * (devices - 1) / devices * size / seconds if seconds > 0 else 0.0


def _devices(point: Point) -> str:
    return units.things(point.devices, "device")
