"""``list``, ``show``, ``compare``, ``report``: which result is meant, and how it is told."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sfbench import load
from sfbench.cli import app
from sfbench.collect.result import load_result, to_json, write_result
from sfbench.common.schema import Interval, Point, SweepResult
from sfbench.report.table import render_table

GOLDEN_FILE = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"
GOLDEN = load_result(GOLDEN_FILE)


def stored(folder: Path, name: str, started: str, result: SweepResult = GOLDEN) -> None:
    """A result folder in ``folder/results``."""
    place = folder / "results" / name
    place.mkdir(parents=True)
    environment = replace(result.environment, started_at=started)
    write_result(place, replace(result, name=name, environment=environment))


def changed(factor: float, half: float = 0.01, failed: tuple[int, ...] = ()) -> SweepResult:
    """The golden result with all rates times ``factor``, known to a part of ``half``."""
    points = (scaled(point, factor, half) for point in GOLDEN.points)
    lost = {"status": "failed", "samples_per_s": None, "efficiency": None}
    return replace(
        GOLDEN,
        points=tuple(replace(p, **lost) if p.devices in failed else p for p in points),  # type: ignore[arg-type]
    )


def scaled(point: Point, factor: float, half: float) -> Point:
    if point.samples_per_s is None:
        return point
    value = point.samples_per_s.value * factor
    rate = Interval(value=value, low=value * (1 - half), high=value * (1 + half))
    return replace(point, samples_per_s=rate)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two results, the newer one named ``old``; the person stands beside them."""
    monkeypatch.chdir(tmp_path)
    stored(tmp_path, "old", "2026-05-06T10:00:00+00:00")
    stored(tmp_path, "new", "2026-05-05T10:00:00+00:00", changed(0.5))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        app.main(list(words))
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_the_newest_result_is_listed_first(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "results" / "torn").mkdir()
    (project / "results" / "torn" / "sweep.json").write_text("{")

    code, out, err = run(capsys, "list")

    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["result", "old", "new", "torn"]
    assert "77.3% ±0.4" in out
    assert "cannot be read" in out
    assert "torn/sweep.json: damaged" in err


def test_a_list_for_programs_holds_numbers(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "list", "--json")
    newest = json.loads(out)["results"][0]
    assert newest["efficiency"]["value"] == pytest.approx(0.773, abs=0.001)
    assert newest["samples_per_s"]["low"] < newest["samples_per_s"]["value"]
    assert newest["efficiency_text"] == "77.3% ±0.4"


def test_a_list_of_nothing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "list")[1] == "No results in results. `sfbench sweep` makes one.\n"
    code, _, err = run(capsys, "show")
    assert code == 2
    assert "no result here" in err


def test_results_are_looked_for_where_the_project_puts_them(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "results").rename(project / "measured")
    (project / "pyproject.toml").write_text('[tool.sfbench]\noutput = "measured"\n')
    assert run(capsys, "show", "new", "--json")[1].count('"name": "new"') == 1
    assert run(capsys, "list", "--output", "elsewhere")[1].startswith("No results in elsewhere")


def test_a_folder_of_the_same_name_beside_the_script_hides_no_result(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "new").mkdir()
    assert run(capsys, "show", "new", "--json")[1].count('"name": "new"') == 1
    # A name that is no result anywhere is told as it was given.
    (project / "other").mkdir()
    assert "other/sweep.json: no such result" in run(capsys, "show", "other")[2]


def test_the_latest_is_shown_without_a_name(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "show")[1] == render_table(GOLDEN, 100, color=False)


def test_several_are_shown_each_below_its_name(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "show", "old", "new")
    assert out.startswith("old, 2026-05-06 10:00\ndevices")
    assert "\n\nnew, 2026-05-05 10:00\ndevices" in out
    document = json.loads(run(capsys, "show", "old", "new", "--json")[1])
    assert [result["name"] for result in document["results"]] == ["old", "new"]


def test_csv_holds_the_figures_of_a_notebook_s_frame(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "show", "old", "new", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    frame = load(project / "results" / "old").points
    assert [row["name"] for row in rows] == ["old"] * 5 + ["new"] * 5
    for row, (_, expected) in zip(rows[:5], frame.iterrows(), strict=True):
        assert set(row) == {"name", "started_at", *frame.columns}
        assert float(row["efficiency"] or "nan") == pytest.approx(
            expected["efficiency"], nan_ok=True
        )
    assert rows[4]["status"] == "failed"
    assert rows[4]["samples_per_s"] == ""


def test_a_spreadsheet_runs_nothing_of_a_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    failed = replace(GOLDEN.points[4], error="=cmd|' /C calc'!A0")
    stored(tmp_path, "x", "2026-05-06T10:00:00+00:00", replace(GOLDEN, points=(failed,)))
    _, out, _ = run(capsys, "show", "x", "--format", "csv")
    assert "'=cmd" in out


def test_markdown_has_the_cells_of_the_table(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "show", "--format", "markdown")
    assert (
        "| 8 | 2550 | 3300 | 77.3% ±0.4 | 50.2 ms | 75% | 12% | 9% | 3% | 1% | look here |" in out
    )
    assert "**Fix first: data-loader-starvation, +9 points" in out


def test_a_document_may_come_from_stdin(project: Path) -> None:
    for words, said in (
        (["show", "-"], "77.3% ±0.4"),
        (["compare", "-", "results/old"], "no clear change"),
        (["report", "-", "-o", "from.html", "--quiet"], ""),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "sfbench", *words],
            input=to_json(GOLDEN),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert said in done.stdout
    assert "<title>8 devices do the work of 6.2" in (project / "from.html").read_text()


@pytest.mark.parametrize(
    ("now", "code", "said"),
    [
        (changed(1.0), 0, "No regression"),
        (changed(1.2), 0, "faster"),
        (changed(0.98, half=0.001), 1, "slower"),
        (changed(1.0, half=0.3), 3, "not known well enough"),
        (changed(1.0, failed=(8,)), 1, "failed now"),
        (replace(changed(0.5), environment=replace(GOLDEN.environment, host="b")), 3, "machine"),
        (replace(changed(0.5), scaling="strong"), 3, "Nothing can be decided"),
        (replace(changed(0.5), target="other.py"), 3, "two scripts"),
        (replace(changed(0.5), target=f"/elsewhere/{Path(GOLDEN.target).name}"), 1, "slower"),
        (replace(GOLDEN, points=GOLDEN.points[4:]), 3, "Nothing can be decided"),
    ],
    ids=[
        "same",
        "faster",
        "slower",
        "vague",
        "failed",
        "machine",
        "scaling",
        "script",
        "moved",
        "nothing",
    ],
)
def test_a_comparison_ends_with_what_it_found(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    now: SweepResult,
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    stored(tmp_path, "a", "2026-05-05T10:00:00+00:00", changed(1.0))
    stored(tmp_path, "b", "2026-05-06T10:00:00+00:00", now)
    for shape in ("text", "markdown", "csv", "json"):
        ended, out, _ = run(capsys, "compare", "a", "b", "--format", shape)
        assert ended == code
        assert shape == "csv" or said in out or shape == "json"
    assert json.loads(out)["outcome"] == {0: "good", 1: "regression", 3: "undecided"}[code]


def test_what_a_tracker_takes_are_numbers_only() -> None:
    figures = load(GOLDEN_FILE).flat()
    assert all(type(value) is float for value in figures.values())
    assert figures["devices_8/efficiency"] == pytest.approx(0.773, abs=0.001)
    assert figures["devices_8/regain/data-loader-starvation"] == pytest.approx(0.094)
    assert figures["points_failed"] == 1.0
    assert not any(name.startswith("devices_16/efficiency") for name in figures)


def test_a_notebook_shows_the_table_and_the_first_fix() -> None:
    shown = load(GOLDEN_FILE)._repr_html_()
    assert "77.3% ±0.4" in shown
    assert "<strong>Fix first" in shown
    assert "<script" not in shown


@pytest.mark.parametrize(("term", "coloured"), [("dumb", False), ("xterm", True)])
def test_a_dumb_terminal_gets_no_colour(term: str, coloured: bool) -> None:
    master, slave = os.openpty()
    words = [sys.executable, "-m", "sfbench", "show", str(GOLDEN_FILE)]
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    environment |= {"TERM": term, "COLUMNS": "40"}
    done = subprocess.run(words, stdout=slave, env=environment, check=False)
    os.close(slave)
    out = os.read(master, 4000)
    os.close(master)
    assert done.returncode == 0
    assert (b"\x1b[" in out) is coloured
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.decode(errors="ignore"))
    assert max(map(len, text.splitlines())) <= 40


def test_the_efficiency_stays_at_40_columns() -> None:
    lines = render_table(GOLDEN, 40, color=False).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[0].split()[:2] == ["devices", "efficiency"]
    text = "\n".join(lines)
    for number in ("50.2 ms", "2550", "12%", "77.3% ±0.4", "3%"):
        assert number in text
