"""The site: it builds without a warning, holds every page, and what contributors read is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"`([\w.*/-]+)`")
FETCHED = re.compile(r"<(?:script|img|link)[^>]+(?:src|href)=\"?(https?:)")
FOLDERS = ("", "sfbench", "sfbench/probe", "sfbench/launch")
"""Where a path in a text may begin."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}

    assert set(re.findall(r": ([\w/.-]+\.md)$", text, re.MULTILINE)) == pages


def test_the_site_holds_the_functions_and_the_diagrams(site: Path) -> None:
    reference, diagrams = ((site / f"{n}.html").read_text() for n in ("api", "architecture"))

    for name in ("sweep", "check", "gate", "load", "data.shard"):
        assert f'id="sfbench.{name}"' in reference
    assert diagrams.count('class="mermaid"') == 2


def test_pages_of_the_site_fetch_nothing_from_elsewhere(site: Path) -> None:
    pages = [*site.glob("*.html"), *site.glob("decisions/*.html")]

    assert len(pages) > 20
    assert [page.name for page in pages if FETCHED.search(page.read_text())] == []


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_files_that_contributors_are_told_of_exist(page: str) -> None:
    named = {path for path in CODE.findall((ROOT / page).read_text()) if "/" in path}
    named = {
        path for path in named if "NAME" not in path and not path.startswith((".venv", "build/"))
    }

    assert named, "paths are in code"
    assert {path for path in named if not exists(path)} == set()


def exists(path: str) -> bool:
    return any(next((ROOT / folder).glob(path.rstrip("/")), None) for folder in FOLDERS)
