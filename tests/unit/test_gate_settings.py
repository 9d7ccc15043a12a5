"""Options of the gate from pyproject.toml and from Python, as the command takes them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from gate_commands import BASE, SCRIPT, SLOWER, TWO, Gate, Launches, git

from sfbench import api
from sfbench.common.errors import UsageError
from sfbench.gating.output import writer
from sfbench.plan.options import GateSettings
from sfbench.plan.settings import load_gate_settings

HERE: dict[str, Any] = {"devices": 2, "device": "cpu"}


def settings(folder: Path, *lines: str) -> None:
    """Write and commit a pyproject.toml whose gate table has these lines."""
    (folder / "pyproject.toml").write_text("\n".join(["[tool.sfbench.gate]", *lines, ""]))


# ---- pyproject.toml ------------------------------------------------------------------------------


def test_the_base_may_stand_in_the_settings(repo: Path, gate: Gate) -> None:
    settings(repo, 'base = "main"', 'margin = "50%"', "budget = 170", 'paths = ["*.py"]')
    (repo / "train.py").write_text(SLOWER)
    document = gate(*TWO, "--json").document
    assert (document["against"], document["margin"], document["budget_s"]) == ("main", 0.5, 170)
    assert document["verdict"] == "pass"
    # the command line wins
    ended = gate(*TWO, "--margin", "8%", "--json")
    assert (ended.code, ended.document["margin"]) == (1, 0.08)
    ended = gate(*TWO, "--paths", "data/**")
    assert ended.code == 0
    assert "Nothing that changed since main matches data/**." in ended.out


def test_a_baseline_on_the_command_line_wins_over_a_base(
    repo: Path, gate: Gate, recorded: Path
) -> None:
    settings(repo, 'base = "main"', 'paths = "data/**"')
    document = gate("--baseline", str(recorded), *TWO, "--json").document
    assert (document["against"], document["verdict"]) == ("base", "pass")


@pytest.mark.usefixtures("few_draws")
def test_calibrations_and_records_take_them_too(repo: Path, gate: Gate, launches: Launches) -> None:
    settings(repo, "seconds = 1.5", "margin = 0.1", "budget = 90")
    ended = gate(*TWO, "--pairs", "6", "--json", command=("gate", "calibrate", "train.py"))
    document = ended.document
    found = (document["seconds"], document["margin"], document["budget_s"])
    assert found == (1.5, 0.1, 90.0)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("margn = 0.1", "margn = 0.1: there is no such setting. Did you mean margin?"),
        (
            "margin = 8",
            "margin = 8: give a percentage or a ratio between 0 and 100%, as in 8% or 0.08.",
        ),
        ("min-efficiency = true", "min_efficiency = True: give a percentage or a ratio"),
        ("budget = 0", "budget = 0: expected a number of seconds from 1 up"),
        ("seconds = 'long'", "seconds = 'long': expected a number of seconds from 0.5 up"),
        ("paths = 'a.{py,txt}'", "paths = 'a.{py,txt}': braces are not known; give each name"),
        ("paths = 3", "paths = 3: give at least one pattern"),
        ("base = 3", "base = 3: "),
    ],
)
def test_a_wrong_setting_is_named_with_file_and_key(
    repo: Path, gate: Gate, launches: Launches, line: str, told: str
) -> None:
    settings(repo, line)
    ended = gate(*BASE)
    assert (ended.code, launches.plans) == (2, [])
    assert f"{repo}/pyproject.toml [tool.sfbench.gate]: {told}" in ended.err


def test_settings_of_the_gate_must_be_a_table(repo: Path, gate: Gate) -> None:
    (repo / "pyproject.toml").write_text("[tool.sfbench]\ngate = 3\n")
    assert "[tool.sfbench.gate] is not a table" in gate(*BASE).err


@pytest.mark.parametrize(
    ("given", "patterns"),
    [
        ("data/**, transforms.py,", ("data/**", "transforms.py")),
        (["data/**", "transforms.py"], ("data/**", "transforms.py")),
        (["data/**,transforms.py"], ("data/**", "transforms.py")),
        ([], ()),
    ],
)
def test_several_patterns(tmp_path: Path, given: object, patterns: tuple[str, ...]) -> None:
    assert load_gate_settings({"paths": given}, tmp_path).paths == patterns
    with pytest.raises(UsageError, match="--paths = ' , ': give at least one pattern"):
        load_gate_settings({"paths": " , "}, tmp_path)


@pytest.mark.parametrize("given", ["8%", " 8 % ", "0.08", 0.08])
def test_ratios(tmp_path: Path, given: object) -> None:
    found = load_gate_settings({"margin": given, "min_efficiency": given}, tmp_path)
    assert found == GateSettings(margin=0.08, min_efficiency=0.08)


# ---- Python --------------------------------------------------------------------------------------


def test_python_takes_what_the_command_takes(repo: Path) -> None:
    (repo / "train.py").write_text(SLOWER)
    files: dict[str, Any] = {
        "report": "out/gate.html",
        "markdown": repo / "gate.md",
        "junit": "gate.xml",
    }
    report = api.gate(
        "train.py", base="main", margin="8%", min_efficiency="10%", paths="data/**,train.py",
        **files, **HERE,
    )  # fmt: skip
    assert (report.verdict, report.margin, report.min_efficiency) == ("fail", 0.08, 0.1)
    for file in files.values():
        assert "REGRESSION" in Path(file).read_text()
    report = api.gate("train.py", base="main", paths=["data/**"], **HERE)
    assert report.verdict == "not-touched"


def test_python_takes_the_settings(repo: Path) -> None:
    settings(repo, 'base = "main"', "margin = 0.5")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "settings")
    (repo / "train.py").write_text(SLOWER)
    assert api.gate("train.py", **HERE).verdict == "pass"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"margin": 8}, "sfbench.gate: margin = 8: give a percentage or a ratio"),
        ({"margin": 0}, "margin = 0: give a percentage"),
        ({"min_efficiency": 85}, "min_efficiency = 85: give a percentage"),
        ({"margn": 0.1}, "there is no option margn. Did you mean margin?"),
        ({"min_eficiency": 0.1}, "Did you mean min_efficiency?"),
        ({"paths": ","}, "paths = ',': give at least one pattern"),
        ({"junit": "."}, "--junit .: this is a folder"),
        ({"junit": "a", "markdown": "a"}, "name the same file"),
        ({"baseline": "x"}, "give one of base and baseline"),
        ({"baseline": "x", "base": None, "paths": "a"}, "paths needs base"),
        ({"base": None}, "give one of base and baseline"),
    ],
)
def test_python_refuses_what_the_command_refuses(
    repo: Path, launches: Launches, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError) as error:
        api.gate("train.py", **{"base": "main", **options})
    assert told in str(error.value)
    assert launches.plans == []


def test_python_keeps_the_verdict_where_a_file_fails(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "write_whole", full)
    (repo / "train.py").write_text(f"{SCRIPT}# a word\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = api.gate("train.py", base="main", junit="gate.xml", **HERE)
    assert report.verdict == "pass"
    assert "gate.xml: cannot be written: No space left on device" in str(caught[-1].message)
