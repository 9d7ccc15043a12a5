"""The table on the terminal, and the sentences below it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sfbench.analyze.parts import JITTER
from sfbench.collect.result import load_result
from sfbench.common.schema import Interval, Point, Share, SweepResult
from sfbench.report.result_rows import table_rows, worst_point
from sfbench.report.sentences import headline, lines_below, verdict
from sfbench.report.table import render_table

GOLDEN = load_result(Path(__file__).parents[1] / "golden" / "sweep-schema1.json")
ONE, TWO, FOUR, EIGHT, SIXTEEN = GOLDEN.points


def with_points(*points: Point, **changes: object) -> SweepResult:
    return replace(GOLDEN, points=points, **changes)  # type: ignore[arg-type]


def efficient(point: Point, value: float) -> Point:
    return replace(point, efficiency=Interval(value=value, low=value - 0.01, high=value + 0.01))


def test_shares_that_were_not_measured_show_a_dash() -> None:
    result = with_points(replace(ONE, time_share=None), replace(EIGHT, time_share=None))
    rows = table_rows(result).rows
    assert [row.shares for row in rows] == [("–",) * 5] * 2


def known(value: float, half: float | None = 0.01) -> Share:
    if half is None:
        return Share(value=value)
    return Share(value=value, low=value - half, high=value + half)


def test_jitter_has_a_column_where_there_is_any() -> None:
    assert JITTER not in table_rows(GOLDEN).parts
    assert EIGHT.time_share is not None
    shaken = replace(EIGHT, time_share=replace(EIGHT.time_share, jitter=known(0.05)))
    assert JITTER in table_rows(with_points(ONE, shaken)).parts
    assert "5%" in render_table(with_points(ONE, shaken), 120, color=False)


def test_the_worst_point_is_pointed_at() -> None:
    assert worst_point(GOLDEN) is EIGHT
    text = render_table(GOLDEN, 120, color=False)
    [line] = [line for line in text.splitlines() if line.endswith("<- look here")]
    assert line.split()[0] == "8"


def test_an_efficiency_that_is_not_known_is_no_figure() -> None:
    # GIVEN
    wild = replace(EIGHT, efficiency=Interval(value=1.26, low=0.29, high=5.45))
    result = with_points(ONE, wild)
    # WHEN
    table, below, title = (
        render_table(result, 120, color=False),
        lines_below(result),
        headline(result),
    )
    # THEN
    assert table_rows(result).rows[1].efficiency == "?"
    below = " ".join(line.text for line in lines_below(result))
    assert not re.search("126%|29%|545%", f"{table} {below} {title}")
    assert "8 devices: efficiency is not known, too uncertain to say what is lost." in below
    assert title == "8 devices: too uncertain to say anything of efficiency."


def test_where_nothing_is_lost_nothing_is_pointed_at() -> None:
    result = with_points(ONE, efficient(EIGHT, 0.97), diagnoses=())
    assert worst_point(result) is None
    assert "look here" not in render_table(result, 120, color=False)
    assert verdict(result) == ("8 devices: 97% ±1 efficiency, nothing lost that is worth a fix.",)


def test_an_uncertain_efficiency_says_nothing_of_losses() -> None:
    vague = replace(EIGHT, efficiency=Interval(value=0.8, low=0.5, high=1.2))
    first, *_ = verdict(with_points(ONE, vague))
    assert first == (
        "8 devices: 50% to 120% efficiency, too uncertain to say what is lost. "
        "Free the machine of other work, or give it more --rounds and --seconds."
    )


def test_failed_points_show_their_status_and_why() -> None:
    hung = replace(FOUR, status="timeout", error="no progress for 300 s\nlog: x", efficiency=None)
    hung = replace(hung, samples_per_s=None, step_s=None, ideal_samples_per_s=None)
    text = render_table(with_points(ONE, hung, SIXTEEN), 120, color=False)
    assert re.search(r"^ +4 +hung", text, re.MULTILINE)
    assert re.search(r"^ +16 +failed", text, re.MULTILINE)
    assert "Hung: 4 devices: no progress for 300 s\n" in text
    assert "Failed: 16 devices: rank 3 raised ValueError" in text
    assert "log: x" not in text


def test_emulated_is_said_below_the_table() -> None:
    assert "Emulated accelerator" in render_table(GOLDEN, 100, color=False)
    real = render_table(replace(GOLDEN, emulated=False), 100, color=False)
    assert "mulated accelerator" not in real


def test_oversubscribed_is_said_in_the_row_and_below() -> None:
    crowded = replace(EIGHT, oversubscribed=True, best_possible_efficiency=0.25)
    text = render_table(with_points(ONE, crowded), 130, color=False)
    assert re.search(r"^ +8 .*oversubscribed  <- look here$", text, re.MULTILINE)
    assert "keeps its cores busy can reach: 25% at 8 devices." in text


def test_losses_are_named_with_their_points_and_the_slow_rank() -> None:
    first, *_ = verdict(GOLDEN)
    assert first == (
        "8 devices: 22.7% lost. Data loading 10, communication 9, straggler 3 (rank 5), "
        "host contention 1."
    )


def test_without_shares_at_one_device_the_parts_of_the_step_are_named() -> None:
    first, *_ = verdict(with_points(replace(ONE, time_share=None), EIGHT))
    assert first == (
        "8 devices: 22.7% lost. Of each step, in percent: data loading 12, communication 9, "
        "straggler 3 (rank 5), host contention 1."
    )


@pytest.mark.parametrize("half", [2.05, None])
def test_what_the_table_does_not_know_is_no_figure_anywhere(half: float | None) -> None:
    # GIVEN data loading that is known to +-205 points, or has no interval at all
    assert EIGHT.time_share is not None
    vague = replace(EIGHT, time_share=replace(EIGHT.time_share, data=known(0.38, half)))
    result = with_points(ONE, vague)

    first, *_ = verdict(result)

    assert first == (
        "8 devices: 22.7% lost. Communication 9, straggler 3 (rank 5), host contention 1. "
        "Not known: data loading."
    )
    assert " ? " in render_table(result, 120, color=False)
    assert "38" not in first


def test_an_efficiency_without_an_interval_loses_nothing_for_certain() -> None:
    bare = replace(EIGHT, efficiency=Interval(value=0.41, low=None, high=None))
    first, *_ = verdict(with_points(ONE, bare))
    assert first.startswith("8 devices: 41% ±? efficiency, too uncertain to say what is lost.")
    assert headline(with_points(ONE, bare)) == (
        "8 devices: 41% ±? efficiency, too little measured to rely on."
    )


def test_without_any_shares_the_loss_stands_alone() -> None:
    bare = replace(EIGHT, time_share=None)
    first, *_ = verdict(with_points(ONE, bare, diagnoses=()))
    assert first == "8 devices: 22.7% lost."


def test_one_device_that_starves_is_said() -> None:
    assert ONE.time_share is not None
    starved = replace(ONE.time_share, compute=known(0.4), data=known(0.6), host=known(0.0))
    lines = verdict(with_points(replace(ONE, time_share=starved), efficient(EIGHT, 0.99)))
    assert lines[1] == (
        "1 device already computes for only 40% of its step (data loading takes 60%): "
        "efficiency does not show that."
    )


def test_the_first_diagnosis_that_counts_is_to_be_fixed_first() -> None:
    line = next(line for line in verdict(GOLDEN) if line.startswith("Fix first"))
    assert line.startswith("Fix first: data-loader-starvation, +9 points (±1) at 8 devices. Each")
    only_info = replace(GOLDEN, diagnoses=GOLDEN.diagnoses[2:])
    assert not any(line.startswith("Fix first") for line in verdict(only_info))


def test_an_interrupted_sweep_says_so() -> None:
    assert verdict(replace(GOLDEN, interrupted=True))[-1].startswith("Interrupted")


def test_warnings_and_failed_checks_stand_below() -> None:
    warned = with_points(replace(ONE, warnings=("few steps",)), EIGHT, warnings=("mind this",))
    text = render_table(warned, 120, color=False)
    assert "Warning: mind this\n" in text
    assert "Warning: 1 device: few steps\n" in text
    assert "Check sampler-epoch: warn. set_epoch is never called" in text
    assert "same-weights" not in text


def test_what_makes_figures_incomparable_stands_before_the_verdict() -> None:
    said = "not comparable: ranks ran 2 threads, 1 were set"
    lines = list(lines_below(with_points(ONE, replace(EIGHT, warnings=("few steps", said)))))
    texts = [line.text for line in lines if line.kind in ("verdict", "fix", "warning")]
    assert texts[0] == f"Warning: 8 devices: {said}"
    assert texts[-1] == "Warning: 8 devices: few steps"
    assert len([text for text in texts if said in text]) == 1


def test_a_gain_of_less_than_a_point_at_worst_is_not_the_first_to_fix() -> None:
    first = GOLDEN.diagnoses[0]
    barely = replace(first, regain=replace(first.regain, low=0.003))
    lines = verdict(replace(GOLDEN, diagnoses=(barely,)))
    assert not any(line.startswith("Fix first") for line in lines)


@pytest.mark.parametrize(("cause", "first"), [("small-batch", 8), ("no-workers", 1)])
def test_a_larger_batch_never_stands_before_what_costs_scaling(cause: str, first: int) -> None:
    # GIVEN one device loses nearly all of its step to a cause, eight lose 9 points to the loader
    scaling = GOLDEN.diagnoses[0]
    huge = Interval(value=0.9, low=0.85, high=0.95)
    alone = replace(scaling, id=cause, devices=1, regain=huge)
    line = next(
        line
        for line in verdict(replace(GOLDEN, diagnoses=(alone, scaling)))
        if line.startswith("Fix first")
    )
    assert ("at 8 devices" if first == 8 else "of the step at 1 device") in line


@pytest.mark.parametrize("width", [20, 45, 60, 90, 100, 200])
def test_no_number_is_cut_at_any_width(width: int) -> None:
    text = render_table(GOLDEN, width, color=False)
    for number in ("788", "96% ±1", "40.6 ms", "93%", "77.3% ±0.4"):
        assert number in text
    assert "…" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_colour_only_where_it_is_asked_for() -> None:
    assert "\x1b[" in render_table(GOLDEN, 100, color=True)
    assert "\x1b" not in render_table(GOLDEN, 100, color=False)


def test_markup_in_names_is_no_markup() -> None:
    text = render_table(replace(GOLDEN, warnings=("see [bold]this[/bold] :smile:",)), 100, False)
    assert "see [bold]this[/bold] :smile:" in text


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (GOLDEN, "8 devices do the work of 6.2: 77.3% ±0.4 efficiency."),
        (with_points(ONE), "1 device measured: add device counts to see how it scales."),
        (with_points(SIXTEEN), "Nothing could be measured."),
        (
            with_points(replace(TWO, efficiency=None)),
            "2 devices measured; there is no figure at 1 device to compare with.",
        ),
    ],
)
def test_headlines(result: SweepResult, sentence: str) -> None:
    assert headline(result) == sentence


def test_a_result_without_points_has_an_empty_table() -> None:
    assert render_table(with_points(diagnoses=(), checks=()), 100, color=False).startswith(
        "devices"
    )
