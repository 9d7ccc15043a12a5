"""Reports of every kind of result: small, complete, the same each time, harmless."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import golden_results
import pytest
from rich.cells import cell_len

from sfbench.common.schema import Interval, Schedule, Share, Stall
from sfbench.report.html import render_html
from sfbench.report.result_text import render_results_csv, render_results_markdown
from sfbench.report.snippet import render_snippet
from sfbench.report.table import render_table

TYPICAL, LARGEST = 300_000, 2_000_000
SAYS = {
    "good": "8 devices do the work of 7.7",
    "starved": "Fix first: Data loader starvation",
    "straggler": "Each rank&#39;s own steps at 8 devices",
    "failed": "8 devices failed: only 1 device could be measured.",
    "many-ranks": "512 devices do the work of 360",
    "single": "1 device measured: add device counts",
    "unknown": "lost, not told apart",
    "comparison": "biggest change first",
    "trend": "Over time, at 8 devices",
    "gate": "REGRESSION: 8 devices",
    "tune": "What was tried",
    "hostile": "\\u202e",
}
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Tags(HTMLParser):
    """What a browser would act on."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.leads: list[str] = []
        self.handlers: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.leads += [value or "" for name, value in attrs if name in {"src", "href", "action"}]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: make() for name, make in golden_results.PAGES.items()}


def test_a_strip_of_the_timeline_is_drawn_where_it_was_kept(pages: dict[str, str]) -> None:
    assert "A few steps at 8 devices" in pages["straggler"]
    assert "A few steps at" not in pages["good"]


@pytest.mark.parametrize("name", golden_results.PAGES)
def test_every_page_is_small_and_harmless(pages: dict[str, str], name: str) -> None:
    page = pages[name]
    assert len(page.encode()) <= (LARGEST if name == "many-ranks" else TYPICAL)
    tags = Tags(page)
    assert tags.open == []
    assert not tags.names & {"script", "iframe", "object", "embed", "form", "base"}
    assert tags.handlers == []
    assert all(lead.startswith(("#", "data:")) for lead in tags.leads)
    assert not re.search(r"@import|url\((?!#)", page)
    assert not re.search("[\u202a-\u202e]", page)
    assert "nan" not in re.sub(r"<[^>]+>", " ", page).lower().split()
    assert SAYS[name] in page


def test_the_same_result_gives_the_same_bytes(pages: dict[str, str]) -> None:
    assert golden_results.PAGES["straggler"]() == pages["straggler"]


@pytest.mark.parametrize("width", [40, 80, 140])
@pytest.mark.parametrize(
    "make",
    [golden_results.good, golden_results.failed, golden_results.unknown, golden_results.hostile],
)
def test_every_table_fits(make: object, width: int) -> None:
    result = make()  # type: ignore[operator]
    lines = render_table(result, width, color=False).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert "efficiency" in lines[0]


def test_every_result_has_its_other_forms() -> None:
    for make in (
        golden_results.good,
        golden_results.unknown,
        golden_results.many_ranks,
        golden_results.hostile,
    ):
        result = make()
        assert render_results_csv([result]).count("\n") >= 1 + len(result.points)
        assert "| devices |" in render_results_markdown([result])
        assert "<script" not in render_snippet(result) + render_results_markdown([result])


def test_what_is_left_of_a_step_is_drawn_as_unknown() -> None:
    share = replace(golden_results.shares(communication=0.28), compute=Share(reason="no turns"))
    result = golden_results.sweep("part", golden_results.point(1), golden_results.point(4, 0.7))
    partly = replace(result.points[1], time_share=share)

    page = render_html([replace(result, points=(result.points[0], partly))])

    stacked = page.split("Where each step goes</h3>")[1].split("</figure>")[0]
    assert "not told apart" in stacked
    assert "28%" in stacked


def test_parts_that_are_no_figure_are_drawn_as_one_beside_those_that_are() -> None:
    # GIVEN a point whose data loading is no figure, and the others are
    known = golden_results.shares(data=0.1, communication=0.12, straggler=0.08)
    share = replace(known, data=Share(value=0.1, low=-0.3, high=0.5))
    one, four = golden_results.point(1), golden_results.point(4, 0.7, time_share=share)

    page = render_html([golden_results.sweep("part", one, four)])

    stacked = page.split("Where each step goes</h3>")[1].split("</figure>")[0]
    fallen = page.split("From ideal to achieved at 4 devices</h3>")[1].split("</figure>")[0]
    for drawn in (stacked.split("<table")[0], fallen.split("<table")[0]):
        assert "communication" in drawn
        assert "straggler" in drawn
        assert "not told apart" in drawn
    assert "not told apart: data loading" in fallen
    assert re.search(r"data loading</th>\s*<td>-10(\.0)? points", fallen)


def test_one_verb_stands_behind_each_part_and_one_word_behind_counts() -> None:
    stalling = golden_results.point(1, time_share=golden_results.shares(stalls=0.4))
    vague = [golden_results.point(n, 0.9, time_share=golden_results.shares(half=0.4)) for n in
             (2, 4, 8)]  # fmt: skip
    told = render_table(golden_results.sweep("words", stalling, *vague), 200, color=False)
    assert "(stalls take 40%)" in told
    assert "Time shares at 2, 4 and 8 devices: those shown as ?" in told


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([(4, 0.20), (8, 0.12)], "+12 points (±1) at 8 devices"),
        ([(1, 0.13), (8, 0.12)], "+12 points (±1) at 8 devices"),
        ([(1, 0.40), (8, 0.12)], "40 points (±1) of the step at 1 device"),
        ([(4, 0.20)], "+20 points (±1) at 4 devices"),
    ],
)
def test_the_first_fix_is_about_the_count_of_the_verdict(
    found: list[tuple[int, float]], said: str
) -> None:
    causes = tuple(golden_results.cause("data-loader-starvation", *one) for one in found)
    result = replace(golden_results.starved(), diagnoses=causes)
    told = " ".join(render_table(result, 200, color=False).split())
    assert f"Fix first: data-loader-starvation, {said}" in told


def test_a_comparison_is_told_on_the_first_screen() -> None:
    page = render_html([golden_results.starved()], golden_results.good())
    first = " ".join(re.sub(r"<[^>]+>", "", page.split("</header>")[0].split("<header")[1]).split())
    assert "Against good: 8 devices slower (-38.0% ±0.4), 4 devices slower" in first


def test_the_table_of_the_page_has_the_columns_of_the_terminal() -> None:
    result = golden_results.starved()
    table = render_html([result]).split('<table class="points">')[1].split("</table>")[0]
    heads = re.findall(r"<th scope=\"col\"[^>]*>([^<]+)</th>", table)
    first = render_table(result, 140, color=False).splitlines()[0]
    assert heads == [word for word in re.split(r"\s\s+|(?<=ideal) ", first.strip()) if word]
    assert len(re.findall(r"<tr", table)) == 1 + len(result.points)


def test_a_chart_tells_its_figures_under_the_pointer() -> None:
    page = render_html([golden_results.good()])
    chart = page.split("Scaling efficiency</h3>")[1].split("</figure>")[0]
    titles = re.findall(r"<title>(\d+ devices?): [^<]+ samples/s, efficiency [^<]+</title>", chart)
    assert titles == [
        "1 device" if p.devices == 1 else f"{p.devices} devices"
        for p in golden_results.good().points
    ]


def test_stalls_are_drawn_with_their_lines() -> None:
    stall = Stall(
        rank=None, kind="evaluation", line="train.py:31", per="steps", period_steps=50, sure=True,
        times=6, size_s=Interval(value=1.5, low=1.4, high=1.6),
        per_step_s=Interval(value=0.03, low=0.028, high=0.032),
    )  # fmt: skip
    good = golden_results.good()
    last = replace(good.points[-1], stalls=(replace(stall, line="x" * 500 + ".py:9"), stall))

    page = render_html([replace(good, points=(*good.points[:-1], last))])

    figure = page.split("What stops the loop at 8 devices</h3>")[1].split("</figure>")[0]
    for words in ("train.py:31", "evaluation", "every 50 steps", "30 ±2 ms", "1.5 ±0.1 s"):
        assert words in figure
    assert "x" * 30 not in figure.split("<table")[0]


def test_provenance_tells_the_schedule_and_its_seeds() -> None:
    schedule = Schedule(
        seconds=13.0, precision=0.01, rounds=None, warmup_steps=None, rungs=("train", "solo"),
        seeds=(7, 8, 9),
    )  # fmt: skip
    page = render_html([replace(golden_results.good(), schedule=schedule)])
    words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "seeds of the order 7 to 9" in words
    assert "warmup found rungs train, solo" in words
