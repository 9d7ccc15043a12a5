"""`sfbench gate calibrate`, and what later gates make of it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from gate_commands import BASE, SCRIPT, TWO, Gate, Launches, git

from sfbench.gating import calibration_files


@pytest.mark.usefixtures("few_draws")
def test_a_calibration_is_quoted_by_later_gates(repo: Path, gate: Gate) -> None:
    ended = gate(*TWO, "--pairs", "6", command=("gate", "calibrate", "train.py"))
    assert ended.code == 0, ended.err
    assert ended.out.startswith("6 A/A pairs of train at 2 devices")
    assert "false FAIL    0.00 % (at most 1.49 %, 200 draws)" in ended.out
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    ended = gate(*BASE, "--json")
    assert ended.document["calibration"]["false_fail"]["draws"] == 200
    assert ended.document["warnings"] == []
    # of other arguments there is none
    assert gate(*BASE, "--json", "--", "--lr", "1").document["calibration"] is None


@pytest.mark.usefixtures("few_draws")
def test_an_old_calibration_is_warned_about(repo: Path, gate: Gate) -> None:
    ended = gate(*TWO, "--pairs", "6", "--json", command=("gate", "calibrate", "train.py"))
    (path,) = calibration_files.folder().rglob("*.json")
    path.write_text(path.read_text().replace(ended.document["measured_at"][:4], "2020", 1))
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    (warning,) = gate(*BASE, "--json").document["warnings"]
    assert "days old: run `sfbench gate calibrate` again" in warning


@pytest.mark.usefixtures("few_draws")
def test_a_script_in_no_repository_can_be_calibrated(
    repo: Path, gate: Gate, tmp_path: Path, launches: Launches
) -> None:
    (tmp_path / "lonely.py").write_text(SCRIPT)
    command = ("gate", "calibrate", str(tmp_path / "lonely.py"))
    assert gate(*TWO, "--pairs", "6", command=command).code == 0
    assert len(launches.plans) == 12


@pytest.mark.usefixtures("few_draws")
def test_a_broken_script_is_not_calibrated(repo: Path, gate: Gate) -> None:
    (repo / "train.py").write_text("raise\n")
    ended = gate(*TWO, "--pairs", "6", command=("gate", "calibrate", "train.py"))
    assert ended.code == 5
    assert list(calibration_files.folder().rglob("*.json")) == []


@pytest.mark.usefixtures("few_draws")
def test_other_options_than_it_was_made_for_are_told(repo: Path, gate: Gate) -> None:
    words = (*TWO, "--pairs", "6", "--budget", "170")
    assert gate(*words, command=("gate", "calibrate", "train.py")).code == 0
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    ended = gate(*BASE, "--margin", "10%", "--budget", "160")
    said = ended.out.replace("\n", " ")
    assert "holds for --margin 8%, not 10% and --budget 170, not 160" in said
    assert "at a margin of 8% and a budget of 170 s: false FAIL" in said
    # AND launches of another length have none
    document = gate(*BASE, "--budget", "170", "--seconds", "3", "--json").document
    assert document["calibration"] is None


@pytest.mark.usefixtures("few_draws")
def test_another_script_of_that_name_has_its_own(repo: Path, gate: Gate) -> None:
    assert gate(*TWO, "--pairs", "6", command=("gate", "calibrate", "train.py")).code == 0
    (repo / "other").mkdir()
    (repo / "other" / "train.py").write_text(SCRIPT)
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "other")
    (repo / "other" / "train.py").write_text(f"{SCRIPT}# a word\n")
    document = gate(*BASE, "--json", command=("gate", "other/train.py")).document
    assert document["calibration"] is None


@pytest.mark.usefixtures("few_draws")
def test_a_cache_that_takes_nothing_is_found_before_it_is_measured(
    repo: Path, gate: Gate, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFBENCH_CACHE", "/dev/null/cache")
    ended = gate(*TWO, "--pairs", "6", command=("gate", "calibrate", "train.py"))
    assert (ended.code, launches.plans) == (2, [])
    assert "/dev/null/cache/gate: the folder cannot be made" in ended.err


@pytest.mark.usefixtures("few_draws")
def test_a_calibration_that_cannot_be_kept_is_shown(
    repo: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(calibration_files, "write_whole", full)
    ended = gate(*TWO, "--pairs", "6", command=("gate", "calibrate", "train.py"))
    assert ended.code == 2
    assert ended.out.startswith("6 A/A pairs of train at 2 devices")
    assert "the calibration cannot be written: No space left on device" in ended.err


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("against", ["base", "baseline"])
def test_a_damaged_one_is_told_before_anything_is_measured(
    repo: Path, gate: Gate, launches: Launches, recorded: Path, against: str
) -> None:
    assert gate(*TWO, "--pairs", "6", command=("gate", "calibrate", "train.py")).code == 0
    (path,) = calibration_files.places().glob("*.json")
    path.write_text(path.read_text()[:100])
    launches.plans.clear()
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    ended = gate(*(BASE if against == "base" else ("--baseline", str(recorded), *TWO)))
    assert (ended.code, ended.out, launches.plans) == (2, "", [])
    assert f"sfbench: {path}: damaged: " in ended.err
    assert "Remove it, and run `sfbench gate calibrate` again." in ended.err
