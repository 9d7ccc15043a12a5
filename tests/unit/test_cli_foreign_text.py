"""Text from outside, in what commands print: it steers neither terminals nor build servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sfbench.cli import app, console
from sfbench.plan.sweep_plan import LaunchPlan

DOCUMENT = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"
STEERS = "\x1b[31mred\u202e\n::error::obeyed\n##[error]obeyed"


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as end:
        app.main(list(words))
    out, err = capsys.readouterr()
    return end.value.code, out, err


def harmless(text: str) -> bool:
    steering = any(mark in text for mark in ("\x1b", "\u202e"))
    return not steering and not any(
        line.lstrip().startswith(("::", "##[")) for line in text.splitlines()
    )


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_a_stored_document_steers_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: tuple[str, ...]
) -> None:
    document = json.loads(DOCUMENT.read_text())
    document["warnings"] = [STEERS]
    document["name"] = STEERS
    document["environment"]["host"] = STEERS
    failed = next(p for p in document["points"] if p["status"] != "ok")
    failed["error"] = STEERS + "x" * 200_000
    (tmp_path / "sweep.json").write_text(json.dumps(document))
    code, out, err = command(capsys, "show", *how, str(tmp_path))
    assert (code, err) == (0, "")
    assert harmless(out)
    assert len(out) < 60_000


def test_names_in_errors_steer_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = command(capsys, "show", f"a{STEERS}")
    assert code == 2
    assert harmless(err)


def test_lines_for_a_build_server_are_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    console.annotate("::error title=sfbench gate::slower")
    console.say("::error::not ours")
    assert capsys.readouterr().err == "::error title=sfbench gate::slower\n.::error::not ours\n"


HINT = "Arguments of the script go behind"


@pytest.mark.parametrize(
    ("words", "hinted"),
    [
        ("sweep vision --epochs 3", True),
        ("check vision extra", True),
        ("sweep vision --devices 0", False),
        ("sweep nowhere.py", False),
        ("gate vision --baseline nowhere", False),
        ("show a --epochs 3", False),
    ],
)
def test_the_hint_at_script_arguments_fits_its_error(
    capsys: pytest.CaptureFixture[str], words: str, hinted: bool
) -> None:
    code, _, err = command(capsys, *words.split())
    assert code == 2
    assert (HINT in err) is hinted


def test_rounds_are_counted_from_one() -> None:
    launch = LaunchPlan(index=0, round=0, devices=2, cores=None, seconds=1.0, seed=1)
    assert launch.log_name == "round1-devices2"
