"""The sentence about a whole epoch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sfbench.collect.result import load_result
from sfbench.common.schema import EpochTime, SweepResult
from sfbench.report.goodput import goodput_line
from sfbench.report.html import render_html
from sfbench.report.table import render_table

GOLDEN = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"
EPOCH = EpochTime(
    steps=100, training_s=6.0, stalls_s=2.0, evaluation_s=1.5, saving_s=0.5, start_up_s=0.75
)


def with_epochs(*epochs: EpochTime | None) -> SweepResult:
    result = load_result(GOLDEN)
    points = [
        replace(point, epoch=epoch) for point, epoch in zip(result.points, epochs, strict=False)
    ]
    return replace(result, points=tuple(points))


def test_it_accounts_for_the_epoch_at_each_device_count() -> None:
    half = replace(EPOCH, steps=50, training_s=3.0, stalls_s=0.0, evaluation_s=1.0, saving_s=0.0)
    line = goodput_line(with_epochs(EPOCH, half))

    assert line == (
        "One epoch: 10.0 s at 1 device (training 60%, stalls 20%, evaluation 15%, checkpoints 5%), "
        "4.00 s at 2 devices (training 75%, evaluation 25%). Starting up takes 750 ms once."
    )


def test_it_says_what_launches_were_too_short_to_see() -> None:
    result = with_epochs(EPOCH)
    points = (replace(result.points[0], stalls_seen_up_to_steps=55), *result.points[1:])
    far = (replace(result.points[0], stalls_seen_up_to_steps=300), *result.points[1:])

    assert "Stalls rarer than one in 55 steps were not seen." in goodput_line(
        replace(result, points=points)
    )
    assert "not seen" not in goodput_line(replace(result, points=far))


def test_it_stands_in_table_and_report() -> None:
    result = with_epochs(EPOCH)
    line = goodput_line(result)

    assert line in " ".join(render_table(result, 10_000, False).split())
    assert line in render_html([result])


def test_an_epoch_of_unknown_length_is_not_spoken_of() -> None:
    assert goodput_line(with_epochs(None)) == ""
