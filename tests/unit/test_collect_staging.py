"""The result folder appears whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from synthetic import StepTable, measured

from sfbench.collect.frames import step_frame
from sfbench.collect.result import load_result
from sfbench.collect.result_folder import ResultFolder, check_free, tidy
from sfbench.common.errors import UsageError
from sfbench.common.schema import SweepResult
from sfbench.guard.scratch import keep, owner, scratch
from sfbench.report.notebook import load

GOLDEN = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"


@pytest.fixture
def result() -> SweepResult:
    return load_result(GOLDEN)


@pytest.fixture
def steps() -> pd.DataFrame:
    return step_frame([measured(0, StepTable(2).warmup(2).block("train", [0.1] * 3))])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_committed_folder_holds_all(
    tmp_path: Path, result: SweepResult, steps: pd.DataFrame
) -> None:
    path = tmp_path / "results" / "one"
    with ResultFolder(path) as folder:
        (folder.logs_dir / "rank0.log").write_text("hello")
        assert not path.exists()
        assert folder.commit(result, steps) == path
    assert names(tmp_path / "results") == ["one"]
    assert names(path) == ["logs", "steps.parquet", "sweep.json"]
    assert (path / "logs" / "rank0.log").read_text() == "hello"
    got = load(path)
    assert got.result == result
    pd.testing.assert_frame_equal(got.steps, steps)


def test_without_a_commit_nothing_stays(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), ResultFolder(tmp_path / "one"):
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_a_failed_commit_leaves_nothing(
    tmp_path: Path, result: SweepResult, steps: pd.DataFrame
) -> None:
    object.__setattr__(result, "duration_s", float("nan"))
    with pytest.raises(ValueError, match="duration_s"), ResultFolder(tmp_path / "one") as folder:
        folder.commit(result, steps)
    assert names(tmp_path) == []


def test_a_taken_name_is_refused_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(UsageError, match="already exists: choose another --name"):
        check_free(tmp_path / "one")
    with pytest.raises(UsageError):
        ResultFolder(tmp_path / "one")
    check_free(tmp_path / "two")


def test_a_name_that_was_taken_meanwhile_loses_nothing(
    tmp_path: Path, result: SweepResult, steps: pd.DataFrame
) -> None:
    with ResultFolder(tmp_path / "one") as folder:
        (tmp_path / "one").mkdir()
        (tmp_path / "one" / "sweep.json").write_text("another's")
        assert folder.commit(result, steps) == tmp_path / "one-2"
    assert (tmp_path / "one" / "sweep.json").read_text() == "another's"
    assert load_result(tmp_path / "one-2") == result


def test_a_replaced_result_stays_until_the_new_one_is_whole(
    tmp_path: Path, result: SweepResult, steps: pd.DataFrame
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "sweep.json").write_text("old")
    with pytest.raises(KeyboardInterrupt), ResultFolder(tmp_path / "one", replace=True):
        raise KeyboardInterrupt
    assert (tmp_path / "one" / "sweep.json").read_text() == "old"
    with ResultFolder(tmp_path / "one", replace=True) as folder:
        folder.commit(result, steps)
    assert names(tmp_path) == ["one"]
    assert load_result(tmp_path / "one") == result


def test_a_replacement_that_cannot_be_moved_puts_the_old_one_back(
    tmp_path: Path, result: SweepResult, steps: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "sweep.json").write_text("old")
    rename = Path.rename

    def refuse_partial(self: Path, target: Path) -> Path:
        if self.name.endswith(".partial"):
            raise PermissionError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_partial)
    # sweep.json is moved by replace, so only the folder's own move is refused
    with pytest.raises(PermissionError), ResultFolder(tmp_path / "one", replace=True) as folder:
        folder.commit(result, steps)
    assert names(tmp_path) == ["one"]
    assert (tmp_path / "one" / "sweep.json").read_text() == "old"


def test_a_leftover_of_a_killed_process_does_not_get_in(
    tmp_path: Path, result: SweepResult, steps: pd.DataFrame
) -> None:
    with ResultFolder(tmp_path / "one") as first:
        stale = first.logs_dir / "stale.log"
        stale.write_text("old")
        with ResultFolder(tmp_path / "one") as folder:
            folder.commit(result, steps)
    assert names(tmp_path / "one" / "logs") == []


def failed(result: SweepResult) -> SweepResult:
    return replace(result, points=tuple(p for p in result.points if p.status != "ok"))


@pytest.mark.parametrize("why", ["failed", "interrupted"])
def test_only_a_measured_result_takes_the_place_of_another(
    tmp_path: Path, result: SweepResult, steps: pd.DataFrame, why: str
) -> None:
    # GIVEN an older result WHEN the rerun comes to no end that is as good
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "sweep.json").write_text("old")
    less = failed(result) if why == "failed" else replace(result, interrupted=True)
    with ResultFolder(tmp_path / "one", replace=True) as folder:
        place = folder.commit(less, steps)
    # THEN both are there
    assert place == tmp_path / "one-2"
    assert (tmp_path / "one" / "sweep.json").read_text() == "old"
    assert load_result(place) == less


def a_thesis(place: Path) -> None:
    place.mkdir()
    (place / "thesis.tex").write_text("years")


def a_result_with_notes(place: Path) -> None:
    place.mkdir()
    (place / "sweep.json").write_text("{}")
    (place / "notes.txt").write_text("years")


def a_file(place: Path) -> None:
    place.write_text("years")


def a_link_to_a_result(place: Path) -> None:
    other = place.with_name("other")
    other.mkdir()
    (other / "sweep.json").write_text("{}")
    place.symlink_to(other)


def a_link_to_nothing(place: Path) -> None:
    place.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (a_thesis, "it has no sweep.json"), (a_result_with_notes, "it holds notes.txt"),
        (a_file, "it is no folder"), (a_link_to_a_result, "it is a link"),
        (a_link_to_nothing, "it is a link"),
    ],
)  # fmt: skip
def test_what_is_no_result_is_never_replaced(
    tmp_path: Path, make: Callable[[Path], None], told: str
) -> None:
    make(tmp_path / "one")
    before = sorted((str(p), p.is_symlink() or p.is_dir()) for p in tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=told):
        ResultFolder(tmp_path / "one", replace=True)
    assert sorted((str(p), p.is_symlink() or p.is_dir()) for p in tmp_path.rglob("*")) == before


def test_what_becomes_no_result_meanwhile_is_not_replaced(
    tmp_path: Path, result: SweepResult, steps: pd.DataFrame
) -> None:
    with ResultFolder(tmp_path / "one", replace=True) as folder:
        a_thesis(tmp_path / "one")
        assert folder.commit(result, steps) == tmp_path / "one-2"
    assert (tmp_path / "one" / "thesis.tex").read_text() == "years"


def owner_that_is_dead() -> str:
    node, _, _ = owner().split("-")
    return f"{node}-{2**22 + 1}-1"


def test_what_killed_commands_left_is_tidied_and_nothing_else(tmp_path: Path) -> None:
    # GIVEN folders of a killed command, of one that runs, of another machine, and a result that was
    # about to be replaced when its command was killed
    dead, other = owner_that_is_dead(), f"00000000-{2**22 + 1}-1"
    stay = [f".b.{owner()}.partial", f".c.{other}.partial", ".d.partial"]
    for name in (*stay, f".a.{dead}.partial"):
        (tmp_path / name / "logs").mkdir(parents=True)
    (tmp_path / f".v1.2.{dead}.old").mkdir()
    (tmp_path / f".w.{dead}.old").mkdir()
    (tmp_path / "w").mkdir()
    # WHEN the next one begins
    tidy(tmp_path)
    # THEN
    assert names(tmp_path) == [*stay, "v1.2", "w"]


def test_temporary_folders_of_killed_commands_go_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"sfbench-own-{owner_that_is_dead()}-launch-0a1b2c"
    kept = tmp_path / f"sfbench-own-{owner_that_is_dead()}-logs-0a1b2c"
    for folder in (left, kept):
        folder.mkdir()
    keep(kept)
    with scratch("launch") as mine, scratch("logs") as other:
        assert {path.name for path in tmp_path.iterdir()} == {kept.name, mine.name, other.name}
    assert names(tmp_path) == [kept.name]
