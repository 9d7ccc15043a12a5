"""docs/accuracy.md: what was injected beside what was found."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch
from measure import QUIET
from score import COVERED, RIGHT, SIZE_POINTS, SIZE_RATIO, Scored, Summary

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"

INTRODUCTION = """\
# Accuracy: injected faults and what was made of them

`make accuracy` writes this page. Each case is one sweep of the [emulated workload](index.md), whose
devices take exactly the time they are told to, with a fault of a known cause and size, or none. The
matrix is `tests/faults/matrix.py`; how a size follows from the injection stands in
`tests/faults/truth.py`. What is injected is a time per step. A size is right by its part of the
step that the injections alone make. Intervals have to meet its part of the step as it was measured,
to which the host adds: that is what stands under *injected* below, in points (percent). Where a
fault brings to light what the host does by itself (loading inline, starting workers, sharing cores)
it is a range, its upper end from a stopwatch around plain torchrun.
"""


def text(summary: Summary) -> str:
    """The whole page, without a date: it changes only where results do."""
    parts = (INTRODUCTION, _budget(summary), _confusion(summary), _sizes(summary),
             _controls(summary), _machine(summary))  # fmt: skip
    return "\n".join(parts) + "\n"


def _budget(summary: Summary) -> str:
    faults, controls = summary.faults, summary.controls
    sizes = [s for s in faults if s.size_right is not None]
    rows = (
        ("first diagnosis right", f"at least {RIGHT:.0%}",
         f"{sum(s.cause_right for s in faults)} of {len(faults)}"),
        ("size right", f"within {SIZE_RATIO:.0%} or {100 * SIZE_POINTS:.0f} points, all",
         f"{sum(bool(s.size_right) for s in sizes)} of {len(sizes)}"),
        ("interval holds the injected size", f"at least {COVERED:.0%}",
         f"{sum(s.covered is True for s in faults)} of {len(faults)}"),
        ("controls with a bottleneck", "none",
         f"{sum(s.bottlenecks > 0 for s in controls)} of {len(controls)}"),
        ("time shares sum to the step", "within 0.5 %",
         f"{100 * max(s.sum_error for s in summary.scored):.1g} % at most"),
    )  # fmt: skip
    lines = [f"| {what} | {budget} | {found} |" for what, budget, found in rows]
    return "\n".join(("## Budget", "", "| what | budget | found |", "|---|---|---|", *lines, ""))


def _confusion(summary: Summary) -> str:
    counts = Counter((_injected(s), s.first) for s in summary.scored)
    columns = sorted({found for _, found in counts})
    lines = [
        f"| {injected} | " + " | ".join(str(counts[injected, c] or "") for c in columns) + " |"
        for injected in sorted({injected for injected, _ in counts})
    ]
    head = f"| injected (the largest) | {' | '.join(columns)} |"
    return "\n".join(("## First diagnosis", "", head, "|---|" + "---|" * len(columns), *lines, ""))


def _injected(scored: Scored) -> str:
    return scored.case.injected[0].cause if scored.case.injected else "none"


def _sizes(summary: Summary) -> str:
    lines = [
        f"| {s.case.name} | {s.case.what} | {_devices(s)} | {_injected(s)} | {_truth(s)} | "
        f"{_found(s)} | {_interval(s)} |"
        for s in summary.faults
    ]
    head = "| case | fault | devices | cause | injected | found | interval |"
    return "\n".join(("## Sizes", "", head, "|---|---|---|---|---|---|---|", *lines, ""))


def _controls(summary: Summary) -> str:
    lines = [
        f"| {s.case.name} | {s.case.what} | {_devices(s)} | {s.first}{_real(s)} |"
        for s in summary.controls
    ]
    head = "| case | job | devices | bottleneck or contributor |"
    return "\n".join(("## Healthy controls", "", head, "|---|---|---|---|", *lines, ""))


def _real(scored: Scored) -> str:
    return " (real, by a stopwatch)" if scored.first in scored.case.real else ""


def _truth(scored: Scored) -> str:
    if scored.most == scored.truth:
        return _points(scored.truth)
    return f"{_points(scored.truth)} to {_points(scored.most)}"


def _found(scored: Scored) -> str:
    if scored.cause_right:
        return _points(scored.found)
    rank = "" if scored.rank is None else f", rank {scored.rank}"
    return f"wrong: {scored.first}{rank}"


def _interval(scored: Scored) -> str:
    if scored.low is None or scored.high is None:
        return "–"
    missed = "" if scored.covered else " (missed)"
    return f"{_points(scored.low)} to {_points(scored.high)}{missed}"


def _devices(scored: Scored) -> str:
    return ", ".join(str(n) for n in scored.case.devices)


def _points(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def _machine(summary: Summary) -> str:
    return "\n".join(("## Machine", "", *_machine_lines(summary)))


def _machine_lines(summary: Summary) -> Iterator[str]:
    memory = psutil.virtual_memory().total / 2**30
    yield (
        f"{psutil.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}, torch {torch.__version__.partition('+')[0]}."
    )
    busy = ", ".join(s.case.name for s in summary.scored if s.busy > QUIET)
    for scored in summary.scored:
        for error in scored.refused:
            yield ""
            yield f"{scored.case.name} was measured again, since it gave no figures: {error}"
    if busy:
        yield ""
        yield f"Other programs used more than {QUIET:.0%} of the cores around {busy}."
