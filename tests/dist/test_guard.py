"""However a sweep ends, the user's files are as they were, and nothing of the script's is left."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from guarded import ENDS, GUARDS, LIMIT_S, SCRIPT, SFBENCH, Guarded, fill, tree
from harness import SCRIPTS

MakeGuarded = Callable[[str], Guarded]
WAYS = [
    line.split("(")[0].removeprefix("def ")
    for line in SCRIPT.read_text().splitlines()
    if line.startswith("def ") and line.endswith("(out):")
]
ALL_AT_ONCE = (
    ("overlay", "done"), ("overlay", "killed"), ("journal", "done"), ("journal", "all_killed"),
    pytest.param("overlay", "interrupted", marks=pytest.mark.slow),
    pytest.param("journal", "killed", marks=pytest.mark.slow),
)  # fmt: skip


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[MakeGuarded]:
    """Makes the user's folder, and a place for the rest; by kind of guard."""
    with tempfile.TemporaryDirectory() as temporary:  # a short path: sockets lie there

        def make(guard: str) -> Guarded:
            folder, place = tmp_path / "checkpoints", tmp_path / "place"
            place.mkdir()
            fill(folder)
            return Guarded(folder=folder, place=place, guard=guard, temporary=temporary)

        yield make


def check(sweep: Guarded, end: str, *ways: str) -> None:
    """GIVEN a folder with files of an earlier run WHEN a sweep ends THEN it is as before."""
    before = tree(sweep.folder)
    code = getattr(sweep, end)(*ways)
    assert code == ENDS[end], sweep.said()
    assert tree(sweep.folder) == before
    assert sweep.left() == []


@pytest.mark.parametrize(("guard", "end"), ALL_AT_ONCE)
def test_all_ways_of_saving_at_once(guarded: MakeGuarded, guard: str, end: str) -> None:
    check(guarded(guard), end)


@pytest.mark.slow
@pytest.mark.parametrize("way", [way for way in WAYS if way != "until_the_disk_is_full"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("guard", GUARDS)
def test_each_way_of_saving(guarded: MakeGuarded, guard: str, end: str, way: str) -> None:
    check(guarded(guard), end, way)


@pytest.mark.parametrize("guard", ["overlay", pytest.param("journal", marks=pytest.mark.slow)])
def test_savers_as_public_scripts_have_them(guarded: MakeGuarded, guard: str) -> None:
    # GIVEN what such scripts have left behind, and one folder that none has left yet
    sweep = replace(guarded(guard), script=SCRIPTS / "saves_like_others.py")
    for name in (
        "plain/checkpoint.pth.tar", "plain/model_best.pth.tar",
        "lightning_logs/version_0/checkpoints/last.ckpt", "lightning_logs/version_7/hparams.yaml",
    ):  # fmt: skip
        (sweep.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (sweep.folder / name).write_text("a week's training")
    check(sweep, "done")


DISK = """
import json, subprocess, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from guarded import Guarded, fill, tree
disk = Path({place!r}) / "disk"
disk.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "disk", disk], check=True)
sweep = Guarded(folder=disk / "ck", place=Path({place!r}), guard={guard!r}, temporary={temporary!r})
fill(sweep.folder)
before = tree(sweep.folder)
code = sweep.done("until_the_disk_is_full")
print(json.dumps([code, tree(sweep.folder) == before, sweep.left(), sweep.said()]))
"""


@pytest.mark.parametrize("guard", ["overlay", pytest.param("journal", marks=pytest.mark.slow)])
def test_full_disk(tmp_path: Path, guard: str) -> None:
    # GIVEN a small disk of its own, which the script saves to until it is full
    alone = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    with tempfile.TemporaryDirectory() as temporary:
        text = DISK.format(
            here=str(Path(__file__).parent), place=str(tmp_path), guard=guard, temporary=temporary
        )
        told = subprocess.run(
            [*alone, sys.executable, "-c", text],
            check=False,
            capture_output=True,
            text=True,
            timeout=200,
        )
    code, same, left, said = json.loads(told.stdout.splitlines()[-1])
    # THEN
    assert (code, same, left) == (4, True, []), said
    assert "No space left on device" in said


@pytest.mark.slow
def test_with_allow_saves_it_writes_as_without_sfbench(guarded: MakeGuarded) -> None:
    sweep = guarded("overlay")
    words = ["--devices", "1", "--rounds", "1", "--seconds", "0.5", "--rungs", "train"]
    subprocess.run(
        [
            SFBENCH, "sweep", SCRIPT, *words, "--allow-saves",
            "--device", "cpu", "--no-report", "--", sweep.folder, "--ways", "by_torch",
        ],
        cwd=sweep.place, check=True, timeout=120,
    )  # fmt: skip
    assert (sweep.folder / "model.pt").stat().st_size > 1000


@pytest.mark.slow
def test_a_script_that_is_removed_keeps_what_was_measured(tmp_path: Path) -> None:
    # GIVEN a sweep whose script goes after the first launch
    for name in ("for_loop.py", "toy.py"):
        shutil.copy(SCRIPTS / name, tmp_path / name)
    words = ["--devices", "1", "--rounds", "2", "--seconds", "3", "--rungs", "train", "--json"]
    with (tmp_path / "said").open("wb") as said:
        command = subprocess.Popen(
            [SFBENCH, "sweep", "for_loop.py", *words, "--device", "cpu", "--no-report"],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=said,
        )  # fmt: skip
    end_s = time.monotonic() + LIMIT_S
    while b"round 1: ok" not in (tmp_path / "said").read_bytes() and time.monotonic() < end_s:
        time.sleep(0.05)
    (tmp_path / "for_loop.py").unlink()
    document = json.loads(command.communicate(timeout=LIMIT_S)[0])
    # THEN the figures of the first are there, and what happened is told
    assert document["points"][0]["samples_per_s"]["value"] > 0
    assert any("the script was removed" in warning for warning in document["warnings"])
    digest = hashlib.sha256((SCRIPTS / "for_loop.py").read_bytes()).hexdigest()
    assert document["environment"]["script_sha256"] == digest


def test_a_guard_that_cannot_be_had_is_told_before_anything_runs(guarded: MakeGuarded) -> None:
    sweep = guarded("neither")
    before = tree(sweep.folder)
    assert sweep.done() == 2
    assert "--allow-saves" in sweep.said()
    assert tree(sweep.folder) == before
    assert not list((sweep.place / "results").rglob("*.log"))
