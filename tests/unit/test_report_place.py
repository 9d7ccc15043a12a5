"""A report lies in its folder, whatever a stored document calls itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sfbench.cli import app

GOLDEN = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"


@pytest.mark.parametrize("name", ["../../away", "{top}/away", "..", ".hidden", "a/b", ""])
def test_a_report_stays_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # GIVEN a result from anybody WHEN it is reported without -o
    here = tmp_path / "one" / "two"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    document = json.loads(GOLDEN.read_text()) | {"name": name.replace("{top}", str(tmp_path))}
    (here / "result.json").write_text(json.dumps(document))
    with pytest.raises(SystemExit) as end:
        app.main(["report", "result.json"])
    # THEN
    assert not end.value.code
    (report,) = tmp_path.rglob("*.html")
    assert report.parent == here / "reports"
    assert not report.name.startswith(".")
