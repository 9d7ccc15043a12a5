"""What is well formed and yet cannot have been measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sfbench.common.schema import Interval, Point, SweepResult

LARGEST = 1e15
"""No rate, time or count of a sweep is above this."""
SMALLEST = 1e-15
"""None is below this, and above 0."""
LARGEST_OF_ALL = 1e18
"""No number in a document is above this, bytes and steps included."""
_POSITIVE = ("samples_per_s", "efficiency", "step_s")


def faults(result: SweepResult) -> Iterator[str]:
    """Fields of a result that make no sense, each with the reason."""
    counts = [point.devices for point in result.points]
    if len(set(counts)) < len(counts):
        yield "points: a device count stands twice"
    for place, point in enumerate(result.points):
        for fault in _point(point):
            yield f"points.{place}.{fault}"


def _point(point: Point) -> Iterator[str]:
    if not 1 <= point.devices <= LARGEST:
        yield f"devices: {point.devices} is no number of devices"
    if point.status != "ok" and point.samples_per_s is not None:
        yield f"samples_per_s: a point that is {point.status} has no figures"
    if point.status == "ok" and point.samples_per_s is None:
        yield "samples_per_s: a point that is ok has a figure"
    for name in _POSITIVE:
        interval: Interval | None = getattr(point, name)
        if interval is not None:
            yield from _interval(name, interval)
    quantiles = point.step_quantiles
    if quantiles and (not quantiles.q or len(quantiles.q) != len(quantiles.step_s)):
        yield "step_quantiles: q and step_s differ in length, or are empty"


def _interval(name: str, interval: Interval) -> Iterator[str]:
    if not SMALLEST <= interval.value <= LARGEST:
        yield f"{name}.value: {interval.value} cannot have been measured"
    low, high = interval.low, interval.high
    if low is not None and high is not None and not low <= interval.value <= high:
        yield f"{name}: {interval.value} lies outside of its interval {low} to {high}"
