"""The gate's commands in real git repositories; only the launches are made up.

A made-up launch reads in the script that it would run how long its steps take.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import StepTable, launch_record, outcome

from sfbench import cli, gate_launches, sweeps
from sfbench.collect.model import MeasuredLaunch
from sfbench.gate import calibrations
from sfbench.launch.model import LaunchError
from sfbench.plan.model import LaunchPlan, SweepPlan
from sfbench.records import CodeRoot, ModuleFile
from sfbench.schema import LaunchRecord, LoopInfo

JITTER = (1.0, 1.01, 0.99, 1.005, 0.995, 1.002)
SCRIPT = """\
TRAIN_MS = 12
CACHED_MS = 10
SOLO_MS = 9
"""
SLOWER = SCRIPT.replace("12", "20")


class NoLauncher:
    """Starts nothing."""

    def __init__(self, **options: object) -> None:
        self.run = None

    def __enter__(self) -> NoLauncher:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to end."""


@dataclass(slots=True)
class Launches:
    """Made-up launches, counted."""

    plans: list[SweepPlan] = field(default_factory=list)
    cached_factor: dict[int, float] = field(default_factory=dict)
    """Launch -> by how much all of it is slower."""
    foreign: bool = False
    backend: str = "gloo"
    solo: bool = True
    unsteady: set[int] = field(default_factory=set)
    """Launches that never settle."""

    def run(
        self,
        plan: SweepPlan,
        launch: LaunchPlan,
        logs: Path,
        *args: object,
        code: CodeRoot | None = None,
    ) -> MeasuredLaunch:
        """Stands in for ``sfbench.sweeps.run_launch``."""
        (logs / launch.log_name).mkdir(parents=True, exist_ok=True)
        number = len(self.plans)
        self.plans.append(plan)
        text = plan.target.script.read_text()
        for word, fault in (("raise", True), ("break", False)):
            if word in text:
                return _failed(launch, fault=fault)
        speed = JITTER[number % len(JITTER)] * self.cached_factor.get(number, 1.0)
        table = self._table(plan, text, launch.devices, speed, unsteady=number in self.unsteady)
        return MeasuredLaunch(
            plan=launch,
            outcome=outcome(),
            record=self._record(launch.devices, plan.target.script, code),
            steps=table.array(),
        )

    def _table(
        self, plan: SweepPlan, text: str, devices: int, speed: float, *, unsteady: bool
    ) -> StepTable:
        ms = {name: int(value) for name, value in re.findall(r"(\w+)_MS = (\d+)", text)}
        table = StepTable(devices).warmup(5)
        if unsteady:
            return table.block("train", [0.2 - 0.004 * step for step in range(40)])
        for cycle in range(5):
            for rung in ("train", "cached", "unsynced"):
                if rung in plan.rungs:
                    step_s = speed * ms["CACHED" if rung == "unsynced" else rung.upper()] / 1000
                    table.block(rung, [step_s] * 8, cycle=cycle)
            if "solo" in plan.rungs and self.solo:
                table.solo([speed * ms["SOLO"] / 1000] * devices, cycle=cycle)
        return table

    def _record(self, devices: int, script: Path, code: CodeRoot | None) -> LaunchRecord:
        record = launch_record(devices)
        loop: LoopInfo = replace(record.loop, backend=self.backend)
        digest = hashlib.sha256(script.read_bytes()).hexdigest()
        module = ModuleFile(path=str(script.name), sha256=digest, foreign=self.foreign)
        return replace(
            record,
            loop=loop,
            modules=(module,) if code is not None else (),
            unavailable={} if self.solo else {"solo": "ranks talk to each other"},
        )


def _failed(launch: LaunchPlan, *, fault: bool) -> MeasuredLaunch:
    error = LaunchError(
        kind="exception", rank=1, message="rank 1: ValueError: bad batch",
        last_lines=("line 1", "line 2"), log=None, script_fault=fault,
    )  # fmt: skip
    return MeasuredLaunch(plan=launch, outcome=outcome("failed", error), record=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What ``--json`` printed."""
        document: dict[str, Any] = json.loads(self.out)
        return document


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    made_up = Launches()
    for module in (gate_launches, sweeps):
        monkeypatch.setattr(module, "run_launch", made_up.run)
        monkeypatch.setattr(module, "LocalLauncher", NoLauncher)
    return made_up


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launches: Launches) -> Iterator[Path]:
    """A script in one commit, and the person in its folder. Afterwards no worktree is left."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SFBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.email", "test@localhost")
    git(root, "config", "user.name", "test")
    (root / "train.py").write_text(SCRIPT)
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    monkeypatch.chdir(root)
    yield root
    assert git(root, "worktree", "list").count("\n") == 0


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True)
    return done.stdout.decode().strip()


class Gate:
    """``sfbench gate train.py`` with words behind it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str, command: tuple[str, ...] = ("gate", "train.py")) -> Ended:
        with pytest.raises(SystemExit) as end:
            cli.main([*command, *words])
        printed = self._capsys.readouterr()
        code = end.value.code
        return Ended(code=code if isinstance(code, int) else 0, out=printed.out, err=printed.err)


@pytest.fixture
def gate(capsys: pytest.CaptureFixture[str]) -> Gate:
    return Gate(capsys)


TWO = ("--devices", "2", "--device", "cpu")
BASE = ("--base", "main", *TWO)


# ---- verdicts and exit codes ---------------------------------------------------------------------


def test_no_slower_passes(repo: Path, gate: Gate, launches: Launches) -> None:
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    ended = gate(*BASE)
    assert ended.code == 0
    assert ended.out.startswith("PASS: 2 devices ")
    # two pairs measure everything, the others what decides and its control
    assert [len(plan.rungs) for plan in launches.plans] == [4] * 4 + [2] * 8


def test_a_regression_is_exit_code_1_everywhere(
    repo: Path, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / "train.py").write_text(SLOWER)
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    files = {kind: tmp_path / "out" / f"gate.{kind}" for kind in ("md", "xml", "html")}
    ended = gate(
        *BASE, "--json", "--markdown", str(files["md"]), "--junit", str(files["xml"]),
        "--report", str(files["html"]),
    )  # fmt: skip
    assert ended.code == 1, ended.err
    document = ended.document
    assert (document["verdict"], document["confirmed"], document["pairs"]) == ("fail", True, 10)
    assert document["change"]["value"] == pytest.approx(12 / 20 - 1, abs=0.02)
    assert document["base"]["efficiency"] == pytest.approx(9 / 12, abs=0.02)
    assert document["candidate"]["efficiency"] == pytest.approx(9 / 20, abs=0.02)
    assert document["reasons"][0].startswith("Data loading grew from 17% to 50% of the step")
    assert document["base"]["commit"] == git(repo, "rev-parse", "main")
    # THEN the same is said everywhere
    assert files["md"].read_text().startswith("### ❌ REGRESSION: 2 devices")
    assert summary.read_text() == f"before\n{files['md'].read_text()}"
    assert ET.parse(files["xml"]).find(".//failure") is not None
    page = files["html"].read_text()
    assert "REGRESSION: 2 devices" in page
    assert "base main" in page
    notes = [line for line in ended.err.splitlines() if line.startswith("::")]
    assert [note.split(" ")[0] for note in notes] == ["::error", "::warning"]
    # AND the working tree is as it was
    assert (repo / "train.py").read_text() == SLOWER
    assert git(repo, "status", "--porcelain") == "M train.py"


def test_a_machine_that_moves_is_exit_code_3(repo: Path, gate: Gate, launches: Launches) -> None:
    (repo / "train.py").write_text(SLOWER)
    launches.cached_factor = dict.fromkeys(range(6, 100), 1.6)
    ended = gate(*BASE)
    assert ended.code == 3
    assert ended.out.startswith("CONTAMINATED: 2 devices")


def test_a_change_beyond_the_pipeline_is_no_regression_of_it(repo: Path, gate: Gate) -> None:
    (repo / "train.py").write_text(SLOWER.replace("10", "18"))
    ended = gate(*BASE)
    assert ended.code == 3
    assert "the change is not in the data pipeline alone" in ended.out.replace("\n", " ")


def test_no_verdict_is_exit_code_3(repo: Path, gate: Gate) -> None:
    (repo / "train.py").write_text(SLOWER)
    ended = gate(*BASE, "--budget", "1", "--margin", "0.4")
    assert ended.code == 3
    assert ended.out.startswith("INCONCLUSIVE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A script that gives nothing on one side."""

    side: str
    word: str
    code: int
    verdict: str


FAULTS = [
    Fault(side=side, word=word, code=code, verdict=verdict)
    for side in ("base", "candidate")
    for word, code, verdict in (("raise", 5, "broken"), ("break", 4, "not-measured"))
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.side}-{fault.verdict}")
def test_a_side_that_gives_nothing_is_named(
    repo: Path, gate: Gate, tmp_path: Path, fault: Fault
) -> None:
    texts = {"base": f"{SCRIPT}# one\n", "candidate": f"{SCRIPT}# other\n"}
    texts[fault.side] += f"{fault.word}\n"
    (repo / "train.py").write_text(texts["base"])
    git(repo, "commit", "-qam", "base")
    (repo / "train.py").write_text(texts["candidate"])
    junit, page = tmp_path / "gate.xml", tmp_path / "gate.html"
    ended = gate(*BASE, "--json", "--junit", str(junit), "--report", str(page))
    assert (ended.code, ended.document["verdict"]) == (fault.code, fault.verdict)
    (reason,) = ended.document["reasons"]
    assert reason.startswith(fault.side)
    assert "ValueError: bad batch\n    line 1\n    line 2\n" in reason
    assert Path(reason.splitlines()[-1].removeprefix("The ranks' logs: ")).is_dir()
    assert ET.parse(junit).find(".//error") is not None
    assert not page.exists()


def test_a_script_that_the_base_does_not_have_breaks_it(repo: Path, gate: Gate) -> None:
    (repo / "new.py").write_text(SCRIPT)
    ended = gate(*BASE, command=("gate", "new.py"))
    assert ended.code == 5
    assert "base is broken: it has no new.py" in ended.out.replace("\n", " ")


def test_a_launch_that_never_settles_is_made_again(
    repo: Path, gate: Gate, launches: Launches
) -> None:
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    launches.unsteady = {1, 4}
    assert gate(*BASE).code == 0
    launches.unsteady = set(range(1000))
    ended = gate(*BASE)
    assert ended.code == 4
    assert "never came to a steady state" in ended.out.replace("\n", " ")


def test_a_floor_is_a_regression_too(repo: Path, gate: Gate, launches: Launches) -> None:
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    assert gate(*BASE, "--min-efficiency", "70%").code == 0
    assert {len(plan.rungs) for plan in launches.plans} == {4}
    ended = gate(*BASE, "--min-efficiency", "0.85")
    assert ended.code == 1
    assert "is below the floor of 85%" in ended.out


def test_a_floor_without_a_one_device_rate_is_not_measured(
    repo: Path, gate: Gate, launches: Launches
) -> None:
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    launches.solo = False
    ended = gate(*BASE, "--min-efficiency", "70%")
    assert ended.code == 4
    assert "rate cannot be measured: ranks talk to each other" in ended.out.replace("\n", " ")


# ---- what matters, and what is refused -----------------------------------------------------------


def test_what_does_not_matter_is_not_measured(
    repo: Path, gate: Gate, launches: Launches, tmp_path: Path
) -> None:
    (repo / "README.md").write_text("words\n")
    junit = tmp_path / "gate.xml"
    ended = gate(*BASE, "--paths", "data/**,transforms.py", "--junit", str(junit))
    assert (ended.code, launches.plans) == (0, [])
    assert ended.out.startswith("NOT TOUCHED: train against main.\n")
    assert ET.parse(junit).find(".//skipped") is not None


def test_what_matters_is_measured(repo: Path, gate: Gate) -> None:
    (repo / "train.py").write_text(SLOWER)
    assert gate(*BASE, "--paths", "data/**,train.py").code == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give one of --base GIT_REF and --baseline RESULT"),
        (("--base", "main", "--baseline", "x"), "give one of --base GIT_REF and --baseline"),
        (("--base", "nowhere"), "--base nowhere: no such commit"),
        (("--base", "main"), "there is nothing to compare"),
        (("--base", "main", "--margin", "8"), "--margin '8': give a percentage or a ratio"),
        (("--base", "main", "--margin", "none"), "--margin 'none'"),
        (("--base", "main", "--min-efficiency", "0"), "--min-efficiency '0'"),
        (("--base", "main", "--paths", ","), "--paths: give at least one pattern"),
        (("--baseline", "x", "--paths", "a"), "--paths needs --base"),
        (("--baseline", "nowhere"), "nowhere: no such result"),
        (("--base", "main", "--devices", "0"), "whole numbers from 1 up"),
    ],
)
def test_wrong_use_is_exit_code_2(
    repo: Path, gate: Gate, launches: Launches, words: tuple[str, ...], told: str
) -> None:
    ended = gate(*words)
    assert (ended.code, ended.out, launches.plans) == (2, "", [])
    assert told in ended.err


def test_outside_a_repository_there_is_no_other_side(
    repo: Path, gate: Gate, tmp_path: Path
) -> None:
    (tmp_path / "lonely.py").write_text(SCRIPT)
    ended = gate(*BASE, command=("gate", str(tmp_path / "lonely.py")))
    assert ended.code == 2
    assert "not in a git repository" in ended.err


def test_a_side_that_runs_the_working_tree_is_refused(
    repo: Path, gate: Gate, launches: Launches
) -> None:
    (repo / "train.py").write_text(SLOWER)
    launches.foreign = True
    ended = gate(*BASE)
    assert ended.code == 2
    assert "was imported from the working tree instead of the checkout" in ended.err


def test_sides_that_run_the_same_files_are_refused(repo: Path, gate: Gate) -> None:
    (repo / "unused.py").write_text("UNUSED = 1\n")
    (repo / "README.md").write_text("words\n")
    git(repo, "add", "README.md")
    ended = gate(*BASE)
    assert ended.code == 2
    assert "both sides ran the same code (1 module files are identical)" in ended.err


def test_a_change_of_what_the_script_reads_is_measured(repo: Path, gate: Gate) -> None:
    for name in ("a.csv", "b.csv", "c.csv", "d.csv", "notes.md"):
        (repo / name).write_text("1\n")
    (repo / os.fsdecode(b"\xff.yaml")).write_text("batch: 8\n")
    git(repo, "add", ".")
    ended = gate(*BASE, "--json")
    assert ended.code == 0, ended.err
    assert ended.document["warnings"][0] == (
        "both sides imported the same code: the change is in a.csv, b.csv, c.csv and 2 more files, "
        "which the script may read"
    )
    git(repo, "commit", "-qm", "second")
    git(repo, "mv", os.fsdecode(b"\xff.yaml"), "e.yaml")
    assert "the change is in e.yaml and \ufffd.yaml, which" in gate(*BASE).out.replace("\n", " ")


def test_new_files_that_are_not_code_are_on_both_sides(repo: Path, gate: Gate) -> None:
    (repo / "config.yaml").write_text("batch: 8\n")
    ended = gate(*BASE)
    assert ended.code == 2
    assert "there is nothing to compare" in ended.err
    assert "until they are staged (`git add`)" in ended.err


def test_what_cannot_be_written_is_refused_before_it_is_measured(
    repo: Path, gate: Gate, launches: Launches
) -> None:
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    ended = gate(*BASE, "--junit", "/dev/null/gate.xml")
    assert (ended.code, launches.plans) == (2, [])
    assert "/dev/null: the folder cannot be made" in ended.err


def test_what_cannot_be_written_afterwards_is_told(repo: Path, gate: Gate) -> None:
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    (repo / "gate.md").mkdir()
    ended = gate(*BASE, "--markdown", "gate.md")
    assert ended.code == 2
    assert "gate.md: cannot be written: Is a directory" in ended.err


def test_a_base_that_moved_on_is_warned_about(repo: Path, gate: Gate) -> None:
    git(repo, "checkout", "-q", "-b", "work")
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    git(repo, "commit", "-qam", "work")
    git(repo, "checkout", "-q", "main")
    git(repo, "commit", "-q", "--allow-empty", "-m", "ahead")
    git(repo, "checkout", "-q", "work")
    ended = gate(*BASE, "--json")
    assert ended.document["warnings"][0].startswith("main has commits that the working tree")


# ---- stored results ------------------------------------------------------------------------------


@pytest.fixture
def recorded(repo: Path, gate: Gate) -> Path:
    """A result that was recorded of the script as it is."""
    ended = gate(*TWO, "--name", "base", command=("gate", "record", "train.py"))
    assert ended.code == 0, ended.err
    assert "Result: results/base" in ended.err
    return repo / "results" / "base"


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


# ---- calibration ---------------------------------------------------------------------------------


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


def test_nothing_is_left_in_the_temporary_folder(repo: Path, gate: Gate, tmp_path: Path) -> None:
    (repo / "train.py").write_text(SLOWER)
    assert gate(*BASE).code == 1
    assert list((tmp_path / "tmp").iterdir()) == []
