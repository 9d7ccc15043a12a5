"""Odd inputs and surroundings: each a clear error in a moment, or none at all."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sfbench.cli import app

SFBENCH = Path(sys.executable).with_name("sfbench")
DOCUMENT = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"
LIMIT_S = 60
"""None takes a second; a machine that is busy may."""


def run(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SFBENCH, *words], cwd=folder, env={**os.environ, **variables},
        capture_output=True, text=True, check=False,
        encoding=variables.get("PYTHONIOENCODING", "utf-8"), timeout=LIMIT_S,
    )  # fmt: skip


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    """Exit code, and the one line of the error."""
    with pytest.raises(SystemExit) as end:
        app.main(list(words))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return end.value.code, lines[0].removeprefix("sfbench: ")


@pytest.mark.parametrize(
    "words",
    [
        "sweep vision --dry-run", "check vision", "gate vision --base HEAD",
        "gate calibrate vision",
        f"report {DOCUMENT}", "show here",
    ],
)  # fmt: skip
def test_the_current_folder_is_gone(tmp_path: Path, words: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"mkdir gone && cd gone && rmdir ../gone && {SFBENCH} {words}"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert (
        "the current folder was removed" in done.stderr
        or "No such file" in done.stderr
        or ("no such result" in done.stderr)
    )


NUMBERS = {
    "9" * 5_000: "damaged: a number has too many digits",
    "123456789012345678901234567890": "so large a number cannot have been measured",
    "1e308": "so large a number cannot have been measured",
    "1e999": "not a finite number",
    "NaN": "not a finite number",
    "-Infinity": "not a finite number",
}


@pytest.mark.parametrize("field", ["duration_s", "ideal_samples_per_s", "value", "data_wait_s"])
@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: n[:12])
def test_numbers_that_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, number: str
) -> None:
    text = re.sub(rf'"{field}": [\d.e-]+', f'"{field}": {number}', DOCUMENT.read_text(), count=1)
    place = tmp_path / "sweep.json"
    place.write_text(text)
    for command in ("show", "report"):
        code, error = told(capsys, command, str(place))
        assert code == 2
        assert error.startswith(f"{place}: ")
        assert error.endswith(NUMBERS[number])


def test_rates_so_small_that_others_become_endless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(DOCUMENT.read_text())
    document["points"][0]["step_s"] = {"value": 1e-320, "low": None, "high": None}
    place = tmp_path / "sweep.json"
    place.write_text(json.dumps(document))
    code, error = told(capsys, "show", str(place))
    assert (code, error.split(": ", 1)[1]) == (
        2, "points.0.step_s.value: 1e-320 cannot have been measured",
    )  # fmt: skip


def test_pipes_and_devices_are_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    assert told(capsys, "show", "pipe") == (2, "pipe: this is a pipe, give a file")
    assert told(capsys, "report", "/dev/zero") == (2, "/dev/zero: this is a device, give a file")
    code, error = told(capsys, "report", str(DOCUMENT), "-o", "pipe")
    assert (code, error) == (2, "pipe: the report cannot be written: No such device or address")
    for target in ("pipe", "/dev/null"):
        code, error = told(capsys, "sweep", target, "--dry-run")
        assert (code, error.split(".")[0]) == (2, f"{target}: is a pipe or a device, no file")


def test_a_name_holds_no_nul(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for key in ("name", "output", "target"):
        Path("pyproject.toml").write_text(f'[tool.sfbench]\n{key} = "a\\u0000b"\n')
        code, error = told(capsys, "sweep", "--dry-run")
        assert code == 2
        assert error.endswith(f"{key} = 'a\\x00b': a text without control characters.")
    Path("pyproject.toml").write_text('[tool.sfbench.gate]\nbase = "a\\u0000b"\n')
    code, error = told(capsys, "gate", "vision")
    assert (code, "a text without control characters" in error) == (2, True)


@pytest.mark.parametrize(
    "settings",
    [
        f"seconds = {'9' * 5_000}", f"seconds = 0x{'f' * 5_000}", f"devices = [{'9' * 5_000}]",
        "seconds = nan", "seconds = inf", "seconds = 1e308", "timeout = nan",
        f"name = {'[' * 9_000}",
    ],
    ids=lambda text: text[:18],
)  # fmt: skip
def test_settings_that_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    settings: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text(f"[tool.sfbench]\n{settings}\n")
    code, error = told(capsys, "sweep", "vision", "--dry-run")
    assert code == 2
    assert "pyproject.toml" in error


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_takes_few_characters(tmp_path: Path, encoding: str) -> None:
    shown = run(["show", str(DOCUMENT)], tmp_path, PYTHONIOENCODING=encoding)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "ideal  efficiency" in shown.stdout
    printed = run(["show", "--json", str(DOCUMENT)], tmp_path, PYTHONIOENCODING=encoding)
    assert (printed.returncode, printed.stderr) == (0, "")
    here = run(["show", "--json", str(DOCUMENT)], tmp_path)
    assert json.loads(printed.stdout) == json.loads(here.stdout)


def test_a_document_outside_ascii_is_the_same_in_ascii(tmp_path: Path) -> None:
    document = json.loads(DOCUMENT.read_text())
    document["name"] = "grün ± 😀"
    (tmp_path / "sweep.json").write_text(json.dumps(document))
    printed = run(["show", "--json", "."], tmp_path, PYTHONIOENCODING="ascii")
    assert json.loads(printed.stdout)["name"] == "grün ± 😀"


PLAIN_C = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize("variables", [{"LC_ALL": "C"}, PLAIN_C], ids=["coerced", "ascii"])
def test_a_script_outside_ascii_in_the_c_locale(tmp_path: Path, variables: dict[str, str]) -> None:
    (tmp_path / "übung.py").write_text("print(1)\n")
    done = run(["sweep", "übung.py", "--dry-run"], tmp_path, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    missing = run(["sweep", "ärger.py", "--dry-run"], tmp_path, **variables)
    assert missing.returncode == 2
    assert "there is no such file" in missing.stderr


def test_a_thousand_times_more_ranks_than_cores_are_not_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, error = told(capsys, "sweep", "emulated", "--devices", "1,1000000", "--dry-run")
    assert code == 2
    assert error.startswith("--devices asks for 1000000 ranks on ")


@pytest.mark.parametrize("counts", ["1,2,", ",1", "1,,2", ""])
def test_a_count_that_is_missing_is_said(capsys: pytest.CaptureFixture[str], counts: str) -> None:
    code, error = told(capsys, "sweep", "emulated", "--devices", counts, "--dry-run")
    assert code == 2
    assert error.endswith("expected whole numbers from 1 up, as in 1,2,4,8.")


@pytest.mark.parametrize(
    "words",
    [["torchrun"], ["torchrun", "train.py"], ["torchrun", "--nproc-per-node", "2", "train.py"]],
)
def test_a_launcher_in_front_of_the_script_is_left_out(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        app.main(["sweep", *words])
    said = capsys.readouterr().err.replace("\n", " ")
    assert end.value.code == 2
    assert "Leave torchrun" in said
    assert "starts the ranks itself" in said
    assert "go behind" not in said
