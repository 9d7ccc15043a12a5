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

import pytest
from PIL import Image, ImageStat

from sfbench.collect.result import load_result
from sfbench.common.files import write_whole
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
  const tables = [...page.querySelectorAll(".scroll")];
  document.body.dataset.page = page.scrollWidth + "/" + page.clientWidth;
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
    scrolling = re.search(r'data-scrolling="(\d+)"', shown.dom)
    assert scrolling is not None
    assert (int(scrolling[1]) > 0) is (width < 1000)
