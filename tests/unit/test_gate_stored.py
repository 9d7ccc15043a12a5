"""`sfbench gate record`, and `sfbench gate --baseline` against what it made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gate_commands import SLOWER, TWO, Gate, Launches


def test_a_record_is_made_of_one_device_and_as_many_as_are_gated(
    recorded: Path, launches: Launches
) -> None:
    points = json.loads((recorded / "sweep.json").read_text())["points"]
    assert [(p["devices"], len(p["launches"])) for p in points] == [(1, 8), (2, 8)]
    assert len(launches.plans) == 16


def test_against_a_stored_result(repo: Path, gate: Gate, recorded: Path) -> None:
    assert gate("--baseline", str(recorded), *TWO).code == 0
    (repo / "train.py").write_text(SLOWER)
    ended = gate("--baseline", str(recorded), *TWO, "--json")
    assert ended.code == 1, ended.err
    document = ended.document
    assert (document["against"], document["pairs"], document["confirmed"]) == ("base", 10, True)
    assert document["change"]["value"] == pytest.approx(-0.4, abs=0.02)
    assert {slot["arm"] for slot in document["slots"]} == {"candidate"}
    assert document["reasons"][0].startswith("Data loading grew from 17% to 50%")


def test_a_slower_machine_is_no_regression(gate: Gate, recorded: Path, launches: Launches) -> None:
    launches.cached_factor = dict.fromkeys(range(16, 100), 1.3)
    assert gate("--baseline", str(recorded), *TWO).code == 3


def test_a_floor_against_a_stored_result(gate: Gate, recorded: Path) -> None:
    assert gate("--baseline", str(recorded), *TWO, "--min-efficiency", "0.85").code == 1


@pytest.mark.parametrize(
    ("changed", "words", "told"),
    [
        ({"torch": "1.0"}, (), "torch: 1.0 stored, "),
        ({"cores": 77}, (), "cores: 77 stored, "),
        ({"cpu": "abacus"}, (), "cpu: abacus stored, "),
        ({}, ("--threads-per-device", "3"), "threads per device: "),
        ({}, ("--", "--lr", "1"), "script args: none stored, --lr 1 here"),
    ],
)
def test_another_machine_or_job_is_refused(
    gate: Gate, recorded: Path, changed: dict[str, object], words: tuple[str, ...], told: str
) -> None:
    file = recorded / "sweep.json"
    document = json.loads(file.read_text())
    document["environment"] |= changed
    file.write_text(json.dumps(document))
    ended = gate("--baseline", str(recorded), *TWO, *words)
    assert ended.code == 2
    assert told in ended.err
    assert "gate record" in ended.err


def test_another_backend_is_seen_once_it_has_run(
    gate: Gate, recorded: Path, launches: Launches
) -> None:
    launches.backend = "mpi"
    ended = gate("--baseline", str(recorded), *TWO)
    assert ended.code == 2
    assert "backend: gloo stored, mpi here" in ended.err
    assert len(launches.plans) == 16 + 1


def test_a_stored_result_without_the_point_never_passes(gate: Gate, recorded: Path) -> None:
    ended = gate("--baseline", str(recorded), "--devices", "4", "--device", "cpu")
    assert ended.code == 2
    assert "no point at 4 devices (it has 1, 2)" in ended.err
