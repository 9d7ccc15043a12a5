"""The HTML report: complete, self-contained, accessible, small."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sfbench.collect.result import load_result
from sfbench.common.files import write_whole
from sfbench.common.schema import Interval, RankResult, Share, SweepResult
from sfbench.report.comparison import compare, rate_change
from sfbench.report.html import render_html
from sfbench.report.properties import Fact, evidence_facts

GOLDEN = load_result(Path(__file__).parents[1] / "golden" / "sweep-schema1.json")
VOID = {"meta", "link", "br", "hr", "img", "input", "use", "path", "rect", "line"}


@dataclass
class Page(HTMLParser):
    """Tags with their attributes, the text, and whether tags are closed in order."""

    html: str
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    text: str = ""
    open: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.misplaced.append(tag)

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += data

    def all(self, name: str) -> list[dict[str, str]]:
        return [attrs for tag, attrs in self.tags if tag == name]

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render_html([GOLDEN]))


def test_it_says_what_was_found(page: Page) -> None:
    for words in (
        "8 devices do the work of 6.2: 77.3% ±0.4 efficiency.",
        "Data loading 10, communication 9, straggler 3 (rank 5), host contention 1.",
        "50.2 ±0.2 ms",
        "Data loader starvation +9 points (±1) at 8 devices bottleneck",
        "Decode the files ahead of time",
        "sampler-epoch warn set_epoch is never called",
        'raise ValueError("batch of 256 does not divide by 16 * 24")',
        "log: logs/round0-devices16/rank3.log",
        GOLDEN.environment.command,
        "Example CPU 16-Core, 16 cores",
    ):
        assert words in page.words


def test_emulated_and_failed_stand_wherever_the_numbers_do(page: Page) -> None:
    assert page.words.count("Emulated accelerator") >= 1 + len(page.all("figure"))
    assert re.search(r"16 failed – – – –", page.words)


def test_nothing_is_fetched_and_nothing_runs(page: Page) -> None:
    assert page.all("script") == []
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    links = [a for _, attrs in page.tags for name, a in attrs.items() if name in {"src", "href"}]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "http" not in page.html.replace("http-equiv", "")
    assert not re.search(r"@import|url\((?!#)", page.html)
    [policy] = [m["content"] for m in page.all("meta") if "http-equiv" in m]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_tags_are_closed_in_order(page: Page) -> None:
    assert (page.open, page.misplaced) == ([], [])


def test_identifiers_are_unique_and_references_lead_somewhere() -> None:
    page = Page(render_html([GOLDEN, GOLDEN], GOLDEN))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    wanted: set[str] = set()
    for _, attrs in page.tags:
        wanted.update(attrs.get("aria-labelledby", "").split())
        wanted.update(re.findall(r"url\(#([\w-]+)\)", " ".join(attrs.values())))
        if attrs.get("href", "").startswith("#"):
            wanted.add(attrs["href"][1:])
    assert wanted <= set(ids)


def test_figures_have_names_and_descriptions(page: Page) -> None:
    figures = page.all("svg")
    assert len(figures) == len(page.all("figure")) == len(page.all("figcaption")) == 5
    for attrs in figures:
        assert attrs["role"] == "img"
        title, description = attrs["aria-labelledby"].split()
        assert re.search(rf'<title id="{title}">[^<]+</title>', page.html)
        assert re.search(
            rf'<desc id="{description}">[^<]*8 devices: 2550 ±10 samples/s[^<]*</desc>', page.html
        )


def test_colours_come_from_the_style_sheet_in_light_and_dark(page: Page) -> None:
    drawn = "".join(re.findall(r"<svg.*?</svg>", page.html, re.DOTALL))
    assert not re.search(r"#[0-9a-f]{6}", drawn)
    used = set(re.findall(r"var\(--(\w+)\)", page.html))
    defined = set(re.findall(r"--([\w-]+):", page.html))
    assert used <= defined
    assert "@media (prefers-color-scheme: dark)" in page.html
    assert "@media print" in page.html


def test_text_in_figures_is_text(page: Page) -> None:
    drawn = re.findall(r"<text[^>]*>([^<]+)</text>", page.html)
    assert {"100%", "77.3% ±0.4", "samples/s", "8 devices", "data loading", "× failed"} <= set(
        drawn
    )


def test_table_headers_have_a_scope(page: Page) -> None:
    headers = page.all("th")
    assert headers
    assert all(attrs.get("scope") in {"col", "row"} for attrs in headers)


def test_wide_tables_scroll_by_themselves_and_by_keyboard(page: Page) -> None:
    regions = [attrs for attrs in page.all("div") if attrs.get("class") == "scroll"]
    assert len(regions) == len(page.all("table"))
    assert all(attrs["tabindex"] == "0" and attrs["role"] == "group" for attrs in regions)


def test_the_language_and_the_viewport_are_told(page: Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all(
        "meta"
    )


def test_names_of_the_users_are_no_markup() -> None:
    hostile = "<script>alert(1)</script>\"'&"
    result = replace(
        GOLDEN,
        name=hostile,
        target=hostile,
        warnings=(hostile,),
        environment=replace(GOLDEN.environment, command=hostile, host=hostile),
        points=(replace(GOLDEN.points[4], error=hostile), *GOLDEN.points[:4]),
    )
    page = Page(render_html([result], replace(GOLDEN, name=hostile)))
    assert page.all("script") == []
    assert page.text.count(hostile) >= 6
    assert (page.open, page.misplaced) == ([], [])


def test_a_typical_report_is_small(page: Page) -> None:
    assert len(page.html.encode()) <= 500_000


def test_many_ranks_are_folded_away_and_stay_small() -> None:
    ranks = tuple(
        RankResult(
            rank=i,
            local_rank=i % 8,
            host=f"node-{i // 8:03d}.cluster.example",
            device=f"cuda:{i % 8}",
            samples_per_s=1234.5,
            solo_step_s=0.0377,
            data_wait_s=0.001,
        )
        for i in range(512)
    )
    points = [replace(p, devices=512, ranks=ranks) for p in GOLDEN.points[3:4]]
    html = render_html([replace(GOLDEN, points=(GOLDEN.points[0], *points))])
    assert len(html.encode()) <= 2_000_000
    page = Page(html)
    assert "node-063.cluster.example" in page.text
    folds = [attrs for tag, attrs in page.tags if tag == "details"]
    assert folds[-1] == {}
    assert "open" in folds[-2]


def test_reasons_for_missing_shares_are_given_once() -> None:
    unknown = Share(reason="rung unsynced: parameters are sharded")
    points = [
        replace(p, time_share=replace(p.time_share, communication=unknown, host=unknown))
        if p.time_share
        else p
        for p in GOLDEN.points
    ]
    words = Page(render_html([replace(GOLDEN, points=tuple(points))])).words
    assert words.count("parameters are sharded") == 1
    assert "Not available at 1, 2, 4 and 8 devices: rung unsynced: parameters are sharded." in words


def test_a_sweep_in_which_all_failed_is_reported() -> None:
    page = Page(render_html([replace(GOLDEN, points=GOLDEN.points[4:], diagnoses=())]))
    assert "Nothing could be measured." in page.words
    assert page.all("svg") == []


def test_oversubscribed_points_show_the_most_that_is_possible() -> None:
    crowded = replace(GOLDEN.points[3], oversubscribed=True, best_possible_efficiency=0.25)
    page = Page(render_html([replace(GOLDEN, points=(GOLDEN.points[0], crowded))]))
    assert "8 oversubscribed look here" in page.words
    assert page.words.count("Oversubscribed: devices share cores.") >= 3
    assert "most that shared cores allow" in page.words


def test_several_results_share_a_page() -> None:
    other = replace(GOLDEN, name="another")
    page = Page(render_html([GOLDEN, other]))
    assert [a["href"] for a in page.all("a")] == ["#r0", "#r1"]
    assert len(page.all("article")) == 2


def slower(result: SweepResult, factor: float) -> SweepResult:
    points = []
    for point in result.points:
        rate = point.samples_per_s
        if rate is not None and rate.low is not None and rate.high is not None:
            scaled = Interval(
                value=rate.value * factor, low=rate.low * factor, high=rate.high * factor
            )
            points.append(replace(point, samples_per_s=scaled))
        else:
            points.append(point)
    return replace(result, points=tuple(points))


def test_a_baseline_stands_beside_the_result() -> None:
    found = compare(slower(GOLDEN, 0.5), GOLDEN)
    assert [row.verdict for row in found.rows] == ["slower"] * 4 + ["–"]
    assert found.rows[0].rate_change == "-50.0% ±0.3"
    assert found.rows[4].note == "baseline: failed, this: failed"
    assert found.differences == ()
    assert [row.verdict for row in compare(slower(GOLDEN, 2.0), GOLDEN).rows[:4]] == ["faster"] * 4
    assert compare(GOLDEN, GOLDEN).rows[0].verdict == "no clear change"


def known(value: float) -> Share:
    return Share(value=value, low=value - 0.01, high=value + 0.01)


def test_parts_of_the_step_are_compared_the_biggest_change_first() -> None:
    # GIVEN a step of 50.2 ms at 8 devices, and one of twice that, of which data takes 60 %
    point = GOLDEN.points[3]
    assert point.step_s is not None
    assert point.time_share is not None
    share = replace(
        point.time_share,
        data=Share(value=0.6, low=0.59, high=0.61),
        compute=Share(value=0.376, low=0.37, high=0.38),
    )
    slow = replace(point, step_s=Interval(value=0.1004, low=0.1, high=0.101), time_share=share)
    found = compare(replace(GOLDEN, points=(*GOLDEN.points[:3], slow)), GOLDEN)
    assert {row.devices for row in found.parts} == {8}
    assert found.parts[0].part == "data loading"
    assert found.parts[0].after == "60.2 ms"
    assert found.parts[0].change.startswith("+5")
    words = Page(render_html([replace(GOLDEN, points=(slow,))], GOLDEN)).words
    assert "Parts of the step at 8 devices, the biggest change first" in words


def test_a_gate_s_verdict_opens_the_page() -> None:
    words = Page(
        render_html([GOLDEN], GOLDEN, verdict=("REGRESSION: 8 devices", "Data loading grew."))
    ).words
    assert words.index("REGRESSION: 8 devices") < words.index("Efficiency")
    assert "Both were launched in turn" in words
    assert "no proof" not in words


def test_what_was_measured_differently_is_said() -> None:
    elsewhere = replace(
        GOLDEN,
        emulated=False,
        script_args=(),
        environment=replace(GOLDEN.environment, host="other", gpus=("H100",)),
        points=GOLDEN.points[:1],
    )
    found = compare(GOLDEN, elsewhere)
    assert found.differences == (
        "script args: none before, --compute-ms 37.7 --params 11200000 now",
        "emulated: no before, yes now",
        "host: other before, bench-1 now",
        "gpus: H100 before, none now",
    )
    assert found.rows[1].note == "baseline: not measured"
    words = Page(render_html([GOLDEN], elsewhere)).words
    assert "The two were not measured alike" in words


def test_the_interval_of_a_change_joins_both() -> None:
    # GIVEN rates known to a factor of exp(0.03) and exp(0.04)
    before = Interval(value=100.0, low=100 / 1.0304545, high=103.04545)
    after = Interval(value=110.0, low=110 / 1.0408108, high=110 * 1.0408108)
    # THEN their ratio is known to exp(0.05)
    change = rate_change(after, before)
    assert change.value == pytest.approx(1.1)
    assert change.high == pytest.approx(1.1 * 1.0512711)
    assert rate_change(after, Interval(value=1.0, low=None, high=None)).low is None


def test_evidence_is_written_by_the_unit_in_its_name() -> None:
    facts = evidence_facts(
        {
            "sample_s": 0.0031,
            "wait_share": 0.12,
            "bytes_per_step": 44_800_000,
            "bus_bandwidth_bytes_per_s": 2**30,
            "samples_per_s": 412.0,
            "samples_per_s_at_batch": 412.0,
            "one_worker_s_per_batch": 0.05,
            "share_of_step": 0.12,
            "workers_needed": 5,
            "alone_as_well": True,
            "kind": "persistent",
            "unknown": None,
        }
    )
    assert facts == (
        Fact(name="sample s", text="3.10 ms"),
        Fact(name="wait share", text="12%"),
        Fact(name="bytes per step", text="42.7 MiB"),
        Fact(name="bus bandwidth bytes per s", text="1.00 GiB/s"),
        Fact(name="samples per s", text="412 per s"),
        Fact(name="samples per s at batch", text="412 per s"),
        Fact(name="one worker s per batch", text="50.0 ms"),
        Fact(name="share of step", text="12%"),
        Fact(name="workers needed", text="5"),
        Fact(name="alone as well", text="yes"),
        Fact(name="kind", text="persistent"),
        Fact(name="unknown", text="–"),
    )


def test_the_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "one.html"
    write_whole(path, "first")
    write_whole(path, "second ±")
    assert path.read_text(encoding="utf-8") == "second ±"
    assert [p.name for p in path.parent.iterdir()] == ["one.html"]


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "one.html").mkdir()
    with pytest.raises(OSError, match=r"one\.html"):
        write_whole(tmp_path / "one.html", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["one.html"]


def test_rendering_twice_gives_the_same_page() -> None:
    assert render_html([GOLDEN]) == render_html([GOLDEN])


def test_reading_and_reporting_import_no_torch() -> None:
    modules = (
        "sfbench.collect.result, sfbench.report.notebook, sfbench.report.html, sfbench.report.table"
    )
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=120)
    assert done.returncode == 0


def test_the_table_imports_neither_matplotlib_nor_scipy() -> None:
    code = (
        "import sys, sfbench.collect.result, sfbench.report.table;"
        "sys.exit(bool({'matplotlib', 'scipy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=120)
    assert done.returncode == 0
