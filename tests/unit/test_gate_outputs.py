"""What a gate writes: for every verdict, to every place, and where a place takes nothing."""

from __future__ import annotations

import errno
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from gate_commands import BASE, SCRIPT, SLOWER, Gate, Launches

from sfbench.common import files
from sfbench.gating.output import writer

SAME = f"{SCRIPT}# a word\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A candidate, and what is said of it everywhere."""

    script: str
    code: int
    mark: str
    title: str
    level: str
    tag: str | None
    """In JUnit XML; None: a test that passed."""
    words: tuple[str, ...] = ()
    moved: tuple[int, ...] = ()
    """Launches that are slower as a whole."""
    page: bool = True
    reason: str = field(default="")


CASES = {
    "pass": Case(script=SAME, code=0, mark="✅", title="PASS", level="notice", tag=None),
    "fail": Case(
        script=SLOWER, code=1, mark="❌", title="REGRESSION", level="error", tag="failure",
        reason="Data loading grew",
    ),
    "inconclusive": Case(
        script=SLOWER, code=3, mark="❔", title="INCONCLUSIVE", level="warning", tag="skipped",
        words=("--budget", "120", "--margin", "0.4"), reason="the margin of 40%",
    ),
    "contaminated": Case(
        script=SLOWER, code=3, mark="❔", title="CONTAMINATED", level="warning", tag="skipped",
        moved=tuple(range(6, 100)), reason="The machine changed its speed",
    ),
    "broken": Case(
        script=f"{SCRIPT}raise\n", code=5, mark="❌", title="BROKEN", level="error", tag="error",
        page=False, reason="candidate is broken",
    ),
    "not-measured": Case(
        script=f"{SCRIPT}break\n", code=4, mark="❌", title="NOT MEASURED", level="error",
        tag="error", page=False, reason="candidate could not be measured",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_verdict_is_told_everywhere(
    repo: Path, gate: Gate, launches: Launches, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    (repo / "train.py").write_text(case.script)
    launches.cached_factor = dict.fromkeys(case.moved, 1.6)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    files = ("--markdown", "out/gate.md", "--junit", "out/gate.xml", "--report", "out/gate.html")
    ended = gate(*BASE, *case.words, *files)
    assert ended.code == case.code, ended.err
    assert ended.out.startswith(f"{case.title}: ")
    assert case.reason in ended.out
    markdown = (repo / "out" / "gate.md").read_text()
    assert markdown.startswith(f"### {case.mark} {case.title}: ")
    assert case.reason in markdown
    assert (repo / "summary.md").read_text() == markdown
    verdict = next(line for line in ended.err.splitlines() if line.startswith("::"))
    assert verdict.startswith(f"::{case.level} title=sfbench gate::{case.title}: ")
    assert case.reason in verdict
    junit = ET.parse(repo / "out" / "gate.xml")
    found = [tag for tag in ("failure", "error", "skipped") if junit.find(f".//{tag}") is not None]
    assert found == ([case.tag] if case.tag else [])
    if case.tag:
        assert case.reason in (junit.findtext(f".//{case.tag}") or "")
    page = repo / "out" / "gate.html"
    assert page.exists() is case.page
    if case.page:
        assert f"{case.title}: 2 devices" in page.read_text()
        assert "control (no data loading)" in page.read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--junit", "/dev/null/gate.xml"), "/dev/null: the folder cannot be made"),
        (("--markdown", "."), "--markdown .: this is a folder, give a file in it"),
        (("--markdown", "a", "--junit", "./a"), "--markdown and --junit name the same file: a"),
    ],
)
def test_what_cannot_be_written_is_refused_before_it_is_measured(
    repo: Path, gate: Gate, launches: Launches, words: tuple[str, ...], told: str
) -> None:
    (repo / "train.py").write_text(SAME)
    ended = gate(*BASE, *words)
    assert (ended.code, launches.plans) == (2, [])
    assert told in ended.err


@pytest.mark.parametrize(("script", "code"), [(SLOWER, 1), (f"{SCRIPT}raise\n", 5), (SAME, 2)])
def test_one_file_that_fails_keeps_back_neither_verdict_nor_others(
    repo: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, script: str, code: int
) -> None:
    (repo / "train.py").write_text(script)

    def write_whole(path: Path, text: str) -> None:
        if path.suffix == ".md":
            raise OSError(errno.ENOSPC, "No space left on device")
        files.write_whole(path, text)

    monkeypatch.setattr(writer, "write_whole", write_whole)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.txt")
    ended = gate(*BASE, "--markdown", "gate.md", "--junit", "gate.xml")
    assert ended.code == code
    assert "sfbench: gate.md: cannot be written: No space left on device" in ended.err
    assert ended.out != ""
    assert (repo / "gate.xml").exists()
    assert (repo / "summary.txt").exists()


def test_a_summary_that_cannot_be_written_is_only_told(
    repo: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / "train.py").write_text(SAME)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "nowhere/summary.md")
    ended = gate(*BASE)
    assert ended.code == 0
    assert "sfbench: nowhere/summary.md: cannot be written: No such file" in ended.err


def test_a_device_is_written_to_and_a_link_kept(repo: Path, gate: Gate) -> None:
    (repo / "train.py").write_text(SAME)
    (repo / "latest.md").symlink_to("gate.md")
    ended = gate(*BASE, "--junit", "/dev/null", "--markdown", "latest.md")
    assert ended.code == 0
    assert not Path("/dev/null").is_file()
    assert (repo / "latest.md").is_symlink()
    assert (repo / "gate.md").read_text().startswith("### ✅ PASS")
