"""Reports of every kind of result: small, complete, the same each time, harmless."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import golden_results
import pytest
from rich.cells import cell_len

from sfbench.common.schema import Share
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


def test_a_comparison_is_told_on_the_first_screen() -> None:
    page = render_html([golden_results.starved()], golden_results.good())
    first = " ".join(re.sub(r"<[^>]+>", "", page.split("</header>")[0].split("<header")[1]).split())
    assert "Against good: 8 devices slower (-38.0% ±0.4), 4 devices slower" in first
