"""The result folder appears whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from synthetic import StepTable, measured

from sfbench.collect.frames import step_frame
from sfbench.collect.notebook import load
from sfbench.collect.result import load_result
from sfbench.collect.result_folder import ResultFolder, check_free
from sfbench.common.errors import UsageError
from sfbench.common.schema import SweepResult

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
