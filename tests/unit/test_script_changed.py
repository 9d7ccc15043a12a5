"""A script that is changed or removed while it is measured: what was measured is kept, and told."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from sfbench.collect.environment import script_state, script_warnings


def test_an_unchanged_script_is_not_talked_about(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("pass")
    before = script_state(script)
    assert before.sha256 == hashlib.sha256(b"pass").hexdigest()
    assert script_warnings(before, script) == ()


@pytest.mark.parametrize("happened", ["changed", "removed"])
def test_a_difference_is_told(tmp_path: Path, happened: str) -> None:
    script = tmp_path / "train.py"
    script.write_text("pass")
    before = script_state(script)
    if happened == "changed":
        script.write_text("pass  # faster")
    else:
        script.unlink()
    (told,) = script_warnings(before, script)
    assert f"the script was {happened} while it was measured" in told


def test_a_folder_that_is_gone_is_no_crash(tmp_path: Path) -> None:
    gone = script_state(tmp_path / "away" / "train.py")
    assert (gone.sha256, gone.git_commit) == ("", None)
