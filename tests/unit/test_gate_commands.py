"""Verdicts and exit codes of `sfbench gate --base`, and what it refuses."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest
from gate_commands import BASE, SCRIPT, SLOWER, TWO, Gate, Launches, git

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
        (("--base", "main", "--margin", "8"), "--margin = '8': give a percentage or a ratio"),
        (("--base", "main", "--margin", "none"), "--margin = 'none': give a percentage"),
        (("--base", "main", "--min-efficiency", "0"), "--min-efficiency = '0': give"),
        (("--base", "main", "--paths", ","), "--paths = ',': give at least one pattern"),
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


def test_a_base_that_moved_on_is_warned_about(repo: Path, gate: Gate) -> None:
    git(repo, "checkout", "-q", "-b", "work")
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    git(repo, "commit", "-qam", "work")
    git(repo, "checkout", "-q", "main")
    git(repo, "commit", "-q", "--allow-empty", "-m", "ahead")
    git(repo, "checkout", "-q", "work")
    ended = gate(*BASE, "--json")
    assert ended.document["warnings"][0].startswith("main has commits that the working tree")


def test_nothing_is_left_in_the_temporary_folder(repo: Path, gate: Gate, tmp_path: Path) -> None:
    (repo / "train.py").write_text(SLOWER)
    assert gate(*BASE).code == 1
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_confirmation_runs_in_swapped_checkouts(
    repo: Path, gate: Gate, launches: Launches
) -> None:
    (repo / "train.py").write_text(SLOWER)
    assert gate(*BASE).code == 1
    first, again = launches.ran[:12], launches.ran[12:]
    assert len(again) == 8

    def places(ran: list[tuple[Path, str]], text: str) -> set[str]:
        """In which of the two checkouts a side lay."""
        return {path.parent.parent.name for path, own in ran if own == text}

    assert (places(first, SCRIPT), places(first, SLOWER)) == ({"a"}, {"b"})
    assert (places(again, SCRIPT), places(again, SLOWER)) == ({"b"}, {"a"})
    # AND they are fresh
    assert not {path for path, _ in first} & {path for path, _ in again}


# ---- repositories --------------------------------------------------------------------------------


def test_a_base_that_a_shallow_clone_lacks_is_told(
    repo: Path, gate: Gate, launches: Launches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = git(repo, "rev-parse", "HEAD")
    git(repo, "commit", "-q", "--allow-empty", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", repo.as_uri(), "shallow")
    monkeypatch.chdir(tmp_path / "shallow")
    ended = gate("--base", first, *TWO)
    assert (ended.code, ended.out, launches.plans) == (2, "", [])
    assert f"--base {first}: no such commit" in ended.err
    assert "This clone is shallow: fetch the whole history" in ended.err


@pytest.mark.parametrize(("words", "code"), [(("--paths", "train.py"), 2), ((), 0)])
def test_histories_that_have_nothing_in_common(
    repo: Path, gate: Gate, words: tuple[str, ...], code: int
) -> None:
    git(repo, "checkout", "-q", "--orphan", "other")
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "other")
    ended = gate(*BASE, *words)
    assert ended.code == code
    if words:
        assert "nothing in common with what is checked out" in ended.err
    else:
        assert "main has commits that the working tree does not contain" in ended.out


def test_without_git_there_is_no_other_side(
    repo: Path, gate: Gate, launches: Launches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        ended = gate(*BASE)
    assert (ended.code, ended.out, launches.plans) == (2, "", [])
    assert "git is not installed" in ended.err
