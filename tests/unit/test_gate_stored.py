"""`sfbench gate record`, and `sfbench gate --baseline` against what it made."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest
from gate_commands import SCRIPT, SLOWER, TWO, Gate, Launches

from sfbench.collect import result_folder
from sfbench.plan import request
from sfbench.plan.machine import this_machine


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


def rewrite(recorded: Path, **changes: object) -> None:
    """Change fields of the stored document, ``environment_cpu`` among them."""
    file = recorded / "sweep.json"
    document = json.loads(file.read_text())
    for name, value in changes.items():
        inner = name.removeprefix("environment_")
        (document if inner == name else document["environment"])[inner] = value
    file.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("changed", "words", "told"),
    [
        ({"environment_torch": "1.0"}, (), "torch: 1.0 stored, "),
        ({"environment_cores": 77}, (), "cores: 77 stored, "),
        ({"environment_cpu": "abacus"}, (), "cpu: abacus stored, "),
        (
            {"device_type": "cuda", "environment_gpus": ["H100"]},
            (),
            "device: cuda stored, cpu here",
        ),
        ({"device_type": "cuda", "environment_gpus": ["H100"]}, (), "gpus: H100 stored, none here"),
        ({"scaling": "strong"}, (), "scaling: strong stored, weak here"),
        ({"target": "other.py"}, (), "target: other stored, train here"),
        ({}, ("--threads-per-device", "3"), "threads per device: "),
        ({}, ("--", "--lr", "1"), "script args: none stored, --lr 1 here"),
    ],
)
def test_another_machine_or_job_is_refused(
    gate: Gate, recorded: Path, changed: dict[str, object], words: tuple[str, ...], told: str
) -> None:
    rewrite(recorded, **changed)
    ended = gate("--baseline", str(recorded), *TWO, *words)
    assert ended.code == 2
    assert told in ended.err
    assert "gate record" in ended.err


def test_other_pinning_is_refused(gate: Gate, recorded: Path) -> None:
    pinned = json.loads((recorded / "sweep.json").read_text())["environment"]["pinned"]
    rewrite(recorded, environment_pinned=not pinned)
    ended = gate("--baseline", str(recorded), *TWO)
    assert ended.code == 2
    assert f"pinned: {not pinned} stored, {pinned} here" in ended.err


def test_other_gpus_are_refused(
    gate: Gate, recorded: Path, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = replace(this_machine(), gpus=("H100", "H100"))
    monkeypatch.setattr(request, "this_machine", lambda: here)
    rewrite(recorded, device_type="cuda", environment_gpus=["A100", "A100"])
    launches.plans.clear()
    ended = gate("--baseline", str(recorded), "--devices", "2", "--device", "cuda")
    assert (ended.code, launches.plans) == (2, [])
    assert "gpus: A100 A100 stored, H100 H100 here" in ended.err


GPUS = {
    "gpus": ("H100", "H100"), "gpu_driver": "570.1", "gpu_power_limits_w": (700.0, 700.0),
}  # fmt: skip


@pytest.fixture
def on_gpus(recorded: Path, launches: Launches, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of two GPUs that are here as well."""
    monkeypatch.setattr(request, "this_machine", lambda: replace(this_machine(), **GPUS))  # type: ignore[arg-type]
    here = {f"environment_{name}": value for name, value in GPUS.items()}
    rewrite(
        recorded, device_type="cuda", environment_backend="nccl", environment_nccl="2.27.5",
        environment_pinned=False, environment_threads_per_device=1, **here,
    )  # fmt: skip
    launches.backend, launches.nccl = "nccl", "2.27.5"
    launches.plans.clear()
    return recorded


ON_CUDA = ("--devices", "2", "--device", "cuda", "--threads-per-device", "1")


def test_the_same_gpus_are_compared(gate: Gate, on_gpus: Path) -> None:
    ended = gate("--baseline", str(on_gpus), *ON_CUDA)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"environment_gpu_driver": "560.9"}, "gpu driver: 560.9 stored, 570.1 here"),
        (
            {"environment_gpu_power_limits_w": [700.0, 500.0]},
            "gpu power limits w: 700.0 500.0 stored, 700.0 700.0 here",
        ),
    ],
)
def test_another_driver_or_power_limit_is_refused_before_anything_runs(
    gate: Gate, on_gpus: Path, launches: Launches, changed: dict[str, object], told: str
) -> None:
    rewrite(on_gpus, **changed)
    ended = gate("--baseline", str(on_gpus), *ON_CUDA)
    assert (ended.code, ended.out, launches.plans) == (2, "", [])
    assert told in ended.err


def test_another_nccl_is_refused_once_it_has_run(
    gate: Gate, on_gpus: Path, launches: Launches
) -> None:
    launches.nccl = "2.29.1"
    ended = gate("--baseline", str(on_gpus), *ON_CUDA)
    assert ended.code == 2
    assert "nccl: 2.27.5 stored, 2.29.1 here" in ended.err


@pytest.mark.parametrize(
    ("changed", "words", "told"),
    [
        ({"steps_measured": 0}, (), "base: the point at 2 devices has no figure: no step was"),
        ({"launches": []}, (), "base: 0 launches at 2 devices, too few to tell noise"),
        (
            {"ranks": []},
            ("--min-efficiency", "50%"),
            "base: it holds no one-device rate for --min-efficiency",
        ),
    ],
    ids=["no-steps", "few-launches", "no-one-device-rate"],
)
def test_a_stored_result_that_holds_nothing_to_compare_with_never_passes(
    gate: Gate,
    recorded: Path,
    launches: Launches,
    changed: dict[str, object],
    words: tuple[str, ...],
    told: str,
) -> None:
    points = json.loads((recorded / "sweep.json").read_text())["points"]
    rewrite(recorded, points=[points[0], points[1] | changed])
    launches.plans.clear()
    ended = gate("--baseline", str(recorded), *TWO, *words)
    assert (ended.code, ended.out, launches.plans) == (2, "", [])
    assert told in ended.err


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


def test_a_stored_result_without_a_control_never_passes(
    gate: Gate, recorded: Path, launches: Launches
) -> None:
    points = json.loads((recorded / "sweep.json").read_text())["points"]
    bare = [launch | {"cached_blocks": []} for launch in points[1]["launches"]]
    rewrite(recorded, points=[points[0], points[1] | {"time_share": None, "launches": bare}])
    launches.plans.clear()
    ended = gate("--baseline", str(recorded), *TWO)
    assert (ended.code, ended.out, launches.plans) == (2, "", [])
    assert "base: the cached rung was not measured" in ended.err


# ---- gate record ---------------------------------------------------------------------------------

RECORD = ("gate", "record", "train.py")


def test_a_name_that_is_taken_is_refused(gate: Gate, recorded: Path, launches: Launches) -> None:
    launches.plans.clear()
    before = (recorded / "sweep.json").read_bytes()
    ended = gate(*TWO, "--name", "base", command=RECORD)
    assert (ended.code, ended.out, launches.plans) == (2, "", [])
    assert "results/base already exists: choose another --name, or replace it with" in ended.err
    assert (recorded / "sweep.json").read_bytes() == before
    assert gate(*TWO, "--name", "base", "--force", command=RECORD).code == 0


@pytest.mark.parametrize(("word", "code"), [("raise", 5), ("# break", 4)])
def test_a_record_with_a_failed_point_says_whose_fault_it_is(
    repo: Path, gate: Gate, word: str, code: int
) -> None:
    (repo / "train.py").write_text(f"{SCRIPT}{word}\n")
    ended = gate(*TWO, "--name", "bad", command=RECORD)
    assert ended.code == code
    assert "sfbench: rank 1: ValueError: bad batch" in ended.err
    # AND nothing passes against it
    (repo / "train.py").write_text(SCRIPT)
    ended = gate("--baseline", "results/bad", *TWO)
    assert ended.code == 2
    assert "bad: the point at 2 devices has no figure: rank 1: ValueError: bad batch" in ended.err


def test_a_record_as_json(repo: Path, gate: Gate) -> None:
    ended = gate(*TWO, "--name", "base", "--json", command=RECORD)
    assert ended.code == 0
    assert ended.document == json.loads((repo / "results" / "base" / "sweep.json").read_text())
    assert [point["devices"] for point in ended.document["points"]] == [1, 2]


def test_a_record_that_cannot_be_written_is_found_before_or_shown(
    repo: Path, gate: Gate, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = gate(*TWO, "--output", "/dev/null/results", command=RECORD)
    assert (ended.code, launches.plans) == (2, [])

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(result_folder, "write_result", full)
    ended = gate(*TWO, "--name", "base", "--json", command=RECORD)
    assert (ended.code, len(ended.document["points"])) == (2, 2)
    assert "the result cannot be written: No space left on device" in ended.err
    (repo / "train.py").write_text(f"{SCRIPT}raise\n")
    assert gate(*TWO, "--name", "bad", command=RECORD).code == 5
