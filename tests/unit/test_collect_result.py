"""sweep.json: written whole, read strictly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfbench.collect.result import load_result, parse_result, to_json, write_result
from sfbench.common.errors import ResultError
from sfbench.common.schema import SCHEMA, Interval, SweepResult
from sfbench.gating.fingerprint import of_result
from sfbench.report.notebook import load

GOLDEN = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"


@pytest.fixture
def result() -> SweepResult:
    return load_result(GOLDEN)


def test_a_result_comes_back_as_it_was_written(tmp_path: Path, result: SweepResult) -> None:
    write_result(tmp_path, result)
    assert load_result(tmp_path) == result
    assert load_result(tmp_path / "sweep.json") == result
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.json"]


def test_a_result_names_nobody(result: SweepResult) -> None:
    folder = "home"
    said = f"/{folder}/alice/job/train.py"
    named = replace(result, target=said, script_args=(f"--data={said}",), warnings=(said,))
    text = to_json(parse_result(to_json(named), GOLDEN))
    assert "alice" not in text
    assert "~/job/train.py" in text
    # and is still the base of a gate that is told the whole path
    assert of_result(parse_result(to_json(named), GOLDEN), 8) == of_result(named, 8)


def test_fields_of_a_later_release_are_ignored(tmp_path: Path, result: SweepResult) -> None:
    document = json.loads(to_json(result))
    document["added_later"] = 1
    document["points"][0]["added_later"] = {"x": 2}
    (tmp_path / "sweep.json").write_text(json.dumps(document))
    assert load_result(tmp_path) == result


def change(document: dict[str, Any], path: str, value: object) -> None:
    *parents, last = path.split(".")
    for part in parents:
        document = document[int(part) if part.isdigit() else part]
    document[int(last) if last.isdigit() else last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("points.2.samples_per_s.value", "fast"),
        ("points.0.devices", 1.5),
        ("points.0.devices", True),
        ("points.1.status", "fine"),
        ("points.1.ranks.0.host", 7),
        ("environment.cores", None),
        ("emulated", "yes"),
        ("points", {}),
    ],
)
def test_a_field_of_the_wrong_type_is_named(
    tmp_path: Path, result: SweepResult, path: str, value: object
) -> None:
    document = json.loads(to_json(result))
    change(document, path, value)
    (tmp_path / "sweep.json").write_text(json.dumps(document))
    with pytest.raises(ResultError) as caught:
        load_result(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'sweep.json'}: {path}: ")


def test_a_missing_field_is_named(tmp_path: Path, result: SweepResult) -> None:
    document = json.loads(to_json(result))
    del document["environment"]["torch"]
    (tmp_path / "sweep.json").write_text(json.dumps(document))
    with pytest.raises(ResultError, match=r"environment\.torch: Field required"):
        load_result(tmp_path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_named(tmp_path: Path, result: SweepResult, number: str) -> None:
    text = to_json(result).replace(f'"duration_s": {result.duration_s}', f'"duration_s": {number}')
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(ResultError, match="duration_s: not a finite number"):
        load_result(tmp_path)


@pytest.mark.parametrize("cut", [0, 1, 100, -10])
def test_a_file_cut_short_is_damaged(tmp_path: Path, result: SweepResult, cut: int) -> None:
    (tmp_path / "sweep.json").write_text(to_json(result)[:cut])
    with pytest.raises(ResultError, match=r"sweep\.json: damaged or cut short"):
        load_result(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "not a sweep result"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 100_000, "damaged or cut short"),
    ],
)
def test_what_is_no_document_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "sweep.json").write_bytes(content)
    with pytest.raises(ResultError, match=message):
        load_result(tmp_path)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (SCHEMA + 1, f"schema: version {SCHEMA + 1} is newer than {SCHEMA}"),
        (0, "schema: 0 is no version"),
        ("1", "schema: '1' is no version"),
        (None, "schema: None is no version"),
    ],
)
def test_another_schema_is_refused(tmp_path: Path, schema: object, message: str) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps({"schema": schema}))
    with pytest.raises(ResultError, match=message):
        load_result(tmp_path)


def test_a_missing_result_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no such result; give a result folder"):
        load_result(tmp_path / "nothing")


def test_no_document_carries_a_nan(tmp_path: Path, result: SweepResult) -> None:
    nan = Interval(value=float("nan"), low=None, high=None)
    points = (replace(result.points[0], samples_per_s=nan), *result.points[1:])
    with pytest.raises(ValueError, match=r"points\.0\.samples_per_s\.value: not a finite number"):
        write_result(tmp_path, replace(result, points=points))
    assert list(tmp_path.iterdir()) == []


def test_frames_for_notebooks(result: SweepResult) -> None:
    found = load(GOLDEN)
    assert found.result == result
    assert found.points["devices"].tolist() == [p.devices for p in result.points]
    first = result.points[0].samples_per_s
    assert first is not None
    assert found.points.loc[0, ["samples_per_s", "samples_per_s_low"]].tolist() == [
        first.value,
        first.low,
    ]
    assert found.points["efficiency"].isna().tolist() == [
        p.efficiency is None for p in result.points
    ]
    assert len(found.ranks) == sum(len(p.ranks) for p in result.points)
    assert found.ranks["devices"].tolist()[0] == 1


def test_steps_that_are_not_there_are_named() -> None:
    found = load(GOLDEN)
    with pytest.raises(ResultError, match=r"steps\.parquet: cannot be read"):
        _ = found.steps


@pytest.mark.parametrize("access", [lambda r: r.points, lambda r: r.ranks])
def test_a_result_without_points_has_empty_frames(
    tmp_path: Path, result: SweepResult, access: Callable[..., Any]
) -> None:
    write_result(tmp_path, replace(result, points=()))
    frame = access(load(tmp_path))
    assert len(frame) == 0
    assert "devices" in frame.columns
