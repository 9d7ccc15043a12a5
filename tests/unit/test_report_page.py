"""What a reader finds on the page, and in which order."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from sfbench.collect.result import load_result
from sfbench.common.schema import Share, SweepResult
from sfbench.report.fixes import fixes
from sfbench.report.hero import hero
from sfbench.report.html import render_html
from sfbench.report.trend import trend

GOLDEN = load_result(Path(__file__).parents[1] / "golden" / "sweep-schema1.json")


def words(*results: SweepResult) -> str:
    text = re.sub(r"<style>.*?</style>|<[^>]+>", " ", render_html(list(results)), flags=re.DOTALL)
    return " ".join(text.split())


def title(result: SweepResult) -> str:
    return re.findall(r"<title>(.*?)</title>", render_html([result]))[0]


def with_share(result: SweepResult, devices: int, share: Share) -> SweepResult:
    points = tuple(
        replace(p, time_share=replace(p.time_share, data=share, communication=share))
        if p.devices == devices and p.time_share is not None
        else p
        for p in result.points
    )
    return replace(result, points=points)


def test_the_title_carries_the_verdict() -> None:
    assert title(GOLDEN).startswith("8 devices do the work of 6.2: 77.3% ±0.4 efficiency.")


def test_the_first_fix_stands_before_the_table_and_everything_else_behind_it() -> None:
    page = words(GOLDEN)
    order = [
        page.index(heading)
        for heading in (
            "Fix first: Data loader starvation +9 points (±1) at 8 devices",
            "Measured on Example CPU",
            "batch per device",
            "Where the time goes",
            "What to fix, most worthwhile first",
            "Correctness checks",
            "Rates, steps and what was tried beside the job",
            "Repeat it",
        )
    ]
    assert order == sorted(order)


def test_the_bar_goes_from_achieved_to_ideal() -> None:
    shown = hero(GOLDEN)
    assert [s.label for s in shown.segments] == [
        "achieved", "data loading", "communication", "straggler", "host contention",
    ]  # fmt: skip
    assert abs(sum(s.percent for s in shown.segments) - 100) < 0.1
    assert shown.ceiling is None


def test_the_ceiling_stands_beside_the_bar() -> None:
    crowded = replace(GOLDEN.points[3], oversubscribed=True, best_possible_efficiency=0.25)
    result = replace(GOLDEN, points=(GOLDEN.points[0], crowded))
    assert "25% is the most that 16 shared cores allow" in words(result)


def test_what_is_unknown_is_drawn_as_unknown() -> None:
    # GIVEN two shares at the largest count that are known no better than ±40 points
    result = with_share(GOLDEN, 8, Share(value=0.1, low=-0.3, high=0.5))
    shown = hero(result)
    # THEN the others are drawn all the same
    assert [s.label for s in shown.segments] == [
        "achieved", "straggler", "host contention", "lost, not told apart",
    ]  # fmt: skip
    assert abs(sum(s.percent for s in shown.segments) - 100) < 0.1
    page = render_html([result])
    drawn = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert drawn.count(">not told apart<") == 2  # in the waterfall and the bars
    assert "<pattern" in drawn


def test_a_cause_at_several_counts_is_one_entry() -> None:
    [data, *_] = GOLDEN.diagnoses
    at_four = replace(data, devices=4, regain=replace(data.regain, value=0.04, low=0.03, high=0.05))
    at_one = replace(data, devices=1)
    found = fixes(replace(GOLDEN, diagnoses=(data, at_four, at_one)))
    [cause] = found.scaling
    assert [(c.devices, c.text) for c in cause.counts] == [(4, "+4 points (±1)"),
                                                           (8, "+9 points (±1)")]  # fmt: skip
    assert cause.worth == "+9 points (±1) at 8 devices"
    assert [c.worth for c in found.one_device] == ["+9 points (±1) at 1 device"]
    assert "Straggler" in found.cleared
    assert "Data loader starvation" not in found.cleared


def test_causes_are_cleared_only_if_something_was_looked_at() -> None:
    blind = replace(
        GOLDEN, diagnoses=(), points=tuple(replace(p, time_share=None) for p in GOLDEN.points)
    )
    assert fixes(blind).cleared == ()


def test_failed_checks_come_first() -> None:
    last = replace(GOLDEN.checks[0], id="data-sharding", status="fail")
    page = words(replace(GOLDEN, checks=(*GOLDEN.checks, last)))
    assert page.index("data-sharding fail") < page.index("sampler-epoch warn")


def test_text_from_outside_cannot_turn_the_page_or_name_a_home() -> None:
    env = replace(GOLDEN.environment, command="python /home/" + "somebody/train.py\u202e\x1b[31m")
    page = render_html([replace(GOLDEN, name="a\u202eb" + "x" * 10_000, environment=env)])
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert "somebody" not in page
    assert "~/train.py\\u202e" in page
    assert "characters left out" in page


def test_results_over_time_stand_in_their_order() -> None:
    def at(name: str, day: str) -> SweepResult:
        return replace(GOLDEN, name=name, environment=replace(GOLDEN.environment, started_at=day))

    found = trend([at("late", "2026-03-02T00:00:00"), at("early", "2026-03-01T00:00:00")])
    assert found is not None
    assert found.devices == 8
    assert [row.name for row in found.rows] == ["early", "late"]
    assert found.mixed == ()
    assert trend([GOLDEN]) is None
    other = replace(GOLDEN, target="other.py")
    assert "different targets" in words(GOLDEN, other)


def test_a_part_that_takes_little_is_not_what_one_device_loses() -> None:
    # GIVEN one device that computes for a tenth of its step, while data loading was not measured
    one = GOLDEN.points[0]
    assert one.time_share is not None
    nothing = Share(value=0.0, low=0.0, high=0.0)
    shares = replace(
        one.time_share, compute=Share(value=0.09, low=0.08, high=0.1), data=Share(), host=nothing
    )
    result = replace(GOLDEN, points=(replace(one, time_share=shares), *GOLDEN.points[1:]))
    assert "(what takes the rest is not known)" in words(result)
