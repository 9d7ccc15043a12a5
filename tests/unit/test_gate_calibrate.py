"""`sfbench gate calibrate`, and what later gates make of it."""

from __future__ import annotations

from pathlib import Path

from gate_commands import BASE, SCRIPT, TWO, Gate, Launches

from sfbench.gate import calibrations


def test_a_calibration_is_quoted_by_later_gates(repo: Path, gate: Gate) -> None:
    ended = gate(*TWO, "--pairs", "6", command=("gate", "calibrate", "train.py"))
    assert ended.code == 0, ended.err
    assert ended.out.startswith("6 A/A pairs of train at 2 devices")
    assert "false FAIL    0.00 % (at most 0.07 %, 4000 draws)" in ended.out
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    ended = gate(*BASE, "--json")
    assert ended.document["calibration"]["false_fail"]["draws"] == 4000
    assert ended.document["warnings"] == []
    # of other arguments there is none
    assert gate(*BASE, "--json", "--", "--lr", "1").document["calibration"] is None


def test_an_old_calibration_is_warned_about(repo: Path, gate: Gate) -> None:
    ended = gate(*TWO, "--pairs", "6", "--json", command=("gate", "calibrate", "train.py"))
    (path,) = calibrations.folder().rglob("*.json")
    path.write_text(path.read_text().replace(ended.document["measured_at"][:4], "2020", 1))
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    (warning,) = gate(*BASE, "--json").document["warnings"]
    assert "days old: run `sfbench gate calibrate` again" in warning


def test_a_script_in_no_repository_can_be_calibrated(
    repo: Path, gate: Gate, tmp_path: Path, launches: Launches
) -> None:
    (tmp_path / "lonely.py").write_text(SCRIPT)
    command = ("gate", "calibrate", str(tmp_path / "lonely.py"))
    assert gate(*TWO, "--pairs", "6", command=command).code == 0
    assert len(launches.plans) == 12


def test_a_broken_script_is_not_calibrated(repo: Path, gate: Gate) -> None:
    (repo / "train.py").write_text("raise\n")
    ended = gate(*TWO, "--pairs", "6", command=("gate", "calibrate", "train.py"))
    assert ended.code == 5
    assert list(calibrations.folder().rglob("*.json")) == []
