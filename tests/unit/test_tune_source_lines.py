"""The calls to change are found in the script's text, which stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfbench.protocol.changes import Argument
from sfbench.tuning.source_lines import line_to_change
from sfbench.tuning.tune_report import LineToChange

WORKERS: tuple[Argument, ...] = (("num_workers", 4), ("persistent_workers", True))


def changed(folder: Path, text: str, line: int, *, call: str = "DataLoader") -> LineToChange:
    script = folder / "train.py"
    script.write_text(text)
    found = line_to_change(folder, script, f"train.py:{line}", call, WORKERS)
    assert script.read_text() == text
    return found


def added(one: LineToChange) -> list[str]:
    return [line[1:] for line in one.diff.splitlines()[2:] if line.startswith("+")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = DataLoader(data)", "x = DataLoader(data, num_workers=4, persistent_workers=True)"),
        (
            "x = DataLoader(d, num_workers=0)",
            "x = DataLoader(d, num_workers=4, persistent_workers=True)",
        ),
        (
            "x = torch.utils.data.DataLoader(d, 8,)",
            "x = torch.utils.data.DataLoader(d, 8, num_workers=4, persistent_workers=True)",
        ),
        (
            "x = DataLoader(naïve, num_workers=1, persistent_workers=False)",
            "x = DataLoader(naïve, num_workers=4, persistent_workers=True)",
        ),
    ],
)
def test_a_literal_call_becomes_a_diff(tmp_path: Path, before: str, after: str) -> None:
    found = changed(tmp_path, f"import torch\n{before}\n", 2)

    assert added(found) == [after]
    assert found.path == str(tmp_path / "train.py")


def test_a_call_over_several_lines_gets_a_line(tmp_path: Path) -> None:
    text = "loader = DataLoader(\n    data,\n    batch_size=8\n)\n"

    found = changed(tmp_path, text, 1)

    assert added(found) == ["    batch_size=8,", "    num_workers=4, persistent_workers=True,"]


def test_what_the_script_takes_as_an_option_is_told_as_one(tmp_path: Path) -> None:
    text = (
        'parser.add_argument("--loader-workers", "-w", type=int, dest="workers")\n'
        "args = parser.parse_args()\n"
        "loader = DataLoader(data, num_workers=args.workers)\n"
    )

    found = changed(tmp_path, text, 3)

    assert found.options == "--loader-workers 4"
    assert added(found) == ["loader = DataLoader(data, num_workers=args.workers, "
                            "persistent_workers=True)"]  # fmt: skip


def test_the_name_that_a_class_is_imported_as_counts(tmp_path: Path) -> None:
    text = "from torch.utils.data import DataLoader as DL\nx = list(DL(data))\n"

    assert added(changed(tmp_path, text, 2)) == [
        "x = list(DL(data, num_workers=4, persistent_workers=True))"
    ]


def test_what_a_library_makes_again_is_changed_where_the_script_made_it(tmp_path: Path) -> None:
    text = "loader = DataLoader(data)\nloader = accelerator.prepare(loader)\n"

    found = changed(tmp_path, text, 2)

    assert found.line == "train.py:1"
    assert added(found) == ["loader = DataLoader(data, num_workers=4, persistent_workers=True)"]


@pytest.mark.parametrize(
    "text", ["x = make(data)\n", "x = DataLoader(data, **options)\n", "x = = 1\n"]
)
def test_what_is_not_literal_has_no_diff(tmp_path: Path, text: str) -> None:
    found = changed(tmp_path, text, 1)

    assert (found.diff, found.options) == ("", "")
    assert found.arguments == "num_workers=4, persistent_workers=True"


def test_of_two_files_with_one_name_neither_is_shown(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "data.py").write_text("x = DataLoader(d)\n")

    found = line_to_change(tmp_path, tmp_path / "train.py", "data.py:1", "DataLoader", WORKERS)

    assert (found.line, found.diff) == ("data.py:1", "")
