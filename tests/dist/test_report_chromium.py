"""The report in a real browser: what it shows, in light and dark, wide and narrow."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import axe_core_python
import golden_results
import pytest
from PIL import Image, ImageStat
from pypdf import PdfReader

from sfbench.collect.result import load_result
from sfbench.common.files import write_whole
from sfbench.common.schema import SweepResult
from sfbench.report.html import render_html

GOLDEN = load_result(Path(__file__).parents[1] / "golden" / "sweep-schema1.json")
NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
# What can be told without a browser is told by tests/unit/test_report_html.py.
__test__ = BROWSER is not None

TIMEOUT_S = 120
SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
)
# Holds the page in a window of a set width and measures it there: the page itself has no script.
FRAME = """<!DOCTYPE html><html><body style="margin:0">
<iframe id="f" src="report.html" style="width:{width}px;height:600px;border:0"></iframe>
<script>
const frame = document.getElementById("f");
frame.onload = () => {{
  const page = frame.contentDocument.documentElement;
  const tables = [...page.querySelectorAll(".scroll")].filter((t) => !t.closest("figure"));
  document.body.dataset.page = page.scrollWidth + "/" + page.clientWidth;
  const cell = page.querySelector(".points tbody tr td .meter").getBoundingClientRect();
  document.body.dataset.seen = cell.right <= page.clientWidth;
  document.body.dataset.scrolling = tables.filter((t) => t.scrollWidth > t.clientWidth).length;
}};
</script></body></html>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the browser made of a page."""

    dom: str
    console: str


def browse(page: Path, work: Path, *switches: str) -> Shown:
    """Open a page in a browser of its own, with its data in ``work``; nothing of it stays."""
    assert BROWSER is not None
    argv = [BROWSER, *SWITCHES, f"--user-data-dir={work / 'profile'}", *switches, page.as_uri()]
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "HOME": str(work)},
    )
    try:
        dom, console = process.communicate(timeout=TIMEOUT_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, console
    return Shown(dom=dom, console=console)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    baseline = replace(GOLDEN, name="last week")
    write_whole(path, render_html([GOLDEN], baseline))
    return path


def test_the_page_shows_the_result_and_asks_for_nothing(report: Path, tmp_path: Path) -> None:
    shown = browse(report, tmp_path, "--dump-dom")

    text = " ".join(re.sub(r"<[^>]+>", " ", shown.dom).split())
    assert "8 devices do the work of 6.2: 77.3% ±0.4 efficiency." in text
    assert "Against last week" in text
    assert shown.dom.count("<svg") == 5
    # the page's own policy refuses every request, and the console would say so
    assert "Content Security Policy" not in shown.console
    assert "CONSOLE" not in shown.console
    assert not re.search(r"<script|(?:src|href)=[\"']?https?:", shown.dom)


def test_it_is_dark_where_dark_is_preferred(report: Path, tmp_path: Path) -> None:
    brightness = {}
    for name, scheme in (("dark", 0), ("light", 1)):
        picture = tmp_path / f"{name}.png"
        browse(
            report,
            tmp_path,
            f"--blink-settings=preferredColorScheme={scheme}",
            "--window-size=1280,2400",
            f"--screenshot={picture}",
        )
        with Image.open(picture) as image:
            grey = image.convert("L")
            brightness[name] = ImageStat.Stat(grey).median[0]
            # text and ground are far apart in either
            assert grey.getextrema()[1] - grey.getextrema()[0] > 180

    assert brightness["dark"] < 60
    assert brightness["light"] > 220


@pytest.mark.parametrize("width", [360, 400, 1280])
def test_the_page_never_scrolls_sideways(report: Path, tmp_path: Path, width: int) -> None:
    frame = report.with_name(f"frame-{width}.html")
    frame.write_text(FRAME.format(width=width))

    shown = browse(
        frame,
        tmp_path,
        "--allow-file-access-from-files",
        "--virtual-time-budget=10000",
        "--dump-dom",
    )

    found = re.search(r'data-page="(\d+)/(\d+)"', shown.dom)
    assert found is not None, shown.dom
    assert found[1] == found[2]
    assert 'data-seen="true"' in shown.dom  # the efficiency needs no scrolling at any width
    scrolling = re.search(r'data-scrolling="(\d+)"', shown.dom)
    assert scrolling is not None
    assert (int(scrolling[1]) > 0) is (width < 1000)


AXE = Path(axe_core_python.__file__).with_name("axe.min.js")
RUN_AXE = """<script>
document.querySelectorAll("details").forEach((d) => (d.open = true));
axe.run().then((found) => {
  document.body.dataset.axe = found.violations
    .map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 80)).join(" | "))
    .join("; ") || "clean";
});
</script>"""


def hostile() -> SweepResult:
    long = "x" * 10_000 + "\u202e</title><script>alert(1)</script>"
    env = replace(GOLDEN.environment, host=long, command=long, cpu=long)
    checks = (replace(GOLDEN.checks[0], evidence=long), *GOLDEN.checks)
    points = (*GOLDEN.points[:4], replace(GOLDEN.points[4], error=long))
    return replace(
        GOLDEN, name=long, target=long, environment=env, checks=checks, points=points,
        warnings=(long,),
    )  # fmt: skip


@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_the_page_is_accessible(tmp_path: Path, scheme: int) -> None:
    # GIVEN the page without its policy, so that a script can look at it
    page = render_html([GOLDEN, replace(GOLDEN, name="another")], GOLDEN)
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    path = tmp_path / "axe.html"
    script = f"<script>{AXE.read_text(encoding='utf-8')}</script>{RUN_AXE}"
    write_whole(path, page.replace("</body>", f"{script}</body>"))

    shown = browse(
        path,
        tmp_path,
        f"--blink-settings=preferredColorScheme={scheme}",
        "--virtual-time-budget=60000",
        "--dump-dom",
    )

    found = re.search(r'data-axe="([^"]*)"', shown.dom)
    assert found is not None, shown.console
    assert found[1] == "clean"


def test_hostile_names_neither_run_nor_widen_the_page(tmp_path: Path) -> None:
    write_whole(tmp_path / "report.html", render_html([hostile()]))
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(width=360))

    shown = browse(
        frame,
        tmp_path,
        "--allow-file-access-from-files",
        "--virtual-time-budget=10000",
        "--dump-dom",
    )

    found = re.search(r'data-page="(\d+)/(\d+)"', shown.dom)
    assert found is not None, shown.dom
    assert found[1] == found[2]
    assert "alert" not in shown.console


def test_a_print_holds_what_is_folded_on_the_screen(report: Path, tmp_path: Path) -> None:
    pdf = tmp_path / "report.pdf"

    browse(report, tmp_path, f"--print-to-pdf={pdf}", "--no-pdf-header-footer")

    text = " ".join(" ".join(page.extract_text() for page in PdfReader(pdf).pages).split())
    for words in ("Looked for and not found", "The worth is", "The numbers", "waits for data"):
        assert words in text
    assert "The worth is measured: the cause was" in text


# Holds many pages in windows of two widths, so that one browser measures all of them.
FRAMES = """<!DOCTYPE html><html><body style="margin:0">{frames}
<script>
window.onload = () => {{
  const wide = [...document.querySelectorAll("iframe")].filter((frame) => {{
    const page = frame.contentDocument.documentElement;
    return page.scrollWidth > page.clientWidth || page.querySelector("h1, h2") === null;
  }});
  document.body.dataset.wide = wide.map((frame) => frame.title).join(" ") || "none";
  document.body.dataset.seen = document.querySelectorAll("iframe").length;
}};
</script></body></html>"""


WIDEST = ("failed", "straggler", "many-ranks", "comparison", "gate", "hostile")


def test_no_kind_of_result_scrolls_sideways(tmp_path: Path) -> None:
    for name in WIDEST:
        write_whole(tmp_path / f"{name}.html", golden_results.PAGES[name]())
    frames = [
        f'<iframe title="{name}-{width}" src="{name}.html" style="width:{width}px"></iframe>'
        for name in WIDEST
        for width in (360, 1280)
    ]
    (tmp_path / "all.html").write_text(FRAMES.format(frames="\n".join(frames)))

    shown = browse(
        tmp_path / "all.html",
        tmp_path,
        "--allow-file-access-from-files",
        "--virtual-time-budget=30000",
        "--dump-dom",
    )

    assert f'data-seen="{len(frames)}"' in shown.dom
    assert 'data-wide="none"' in shown.dom, re.findall(r'data-wide="[^"]*"', shown.dom)
    assert "alert" not in shown.console
