"""Every version of the result format that was ever written is read for good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sfbench.collect.result import load_result, to_json
from sfbench.common.schema import SCHEMA
from sfbench.report.html import render_html
from sfbench.report.table import render_table

HERE = Path(__file__).parent
VERSIONS = range(1, SCHEMA + 1)


def sweep(schema: int) -> Path:
    return HERE / f"sweep-schema{schema}.json"


@pytest.mark.parametrize("schema", VERSIONS)
def test_every_schema_has_a_stored_result_that_is_read(schema: int) -> None:
    result = load_result(sweep(schema))

    assert [(p.devices, p.status) for p in result.points] == [
        (1, "ok"),
        (2, "ok"),
        (4, "ok"),
        (8, "ok"),
        (16, "failed"),
    ]
    assert result.emulated


@pytest.mark.parametrize("schema", VERSIONS)
def test_every_schema_can_be_reported(schema: int) -> None:
    result = load_result(sweep(schema))

    assert result.name in render_html([result])


def lost(stored: Any, written: Any, field: str = "") -> list[str]:
    """Fields of a stored document that another one lacks or has with another value."""
    if isinstance(stored, dict):
        missing = [f"{field}.{key}" for key in stored if key not in written]
        common = [key for key in stored if key in written]
        return missing + [n for k in common for n in lost(stored[k], written[k], f"{field}.{k}")]
    if isinstance(stored, list) and len(stored) == len(written):
        pairs = zip(stored, written, strict=True)
        return [n for i, (a, b) in enumerate(pairs) for n in lost(a, b, f"{field}.{i}")]
    return [] if stored == written else [field]


@pytest.mark.parametrize("schema", VERSIONS)
def test_fields_may_be_added_but_never_renamed(schema: int) -> None:
    path = sweep(schema)

    written = json.loads(to_json(load_result(path)))

    assert lost(json.loads(path.read_text()), written) == []


@pytest.mark.parametrize("width", [100, 60])
def test_the_table_is_as_stored(width: int) -> None:
    stored = (HERE / f"table-{width}.txt").read_text()

    assert render_table(load_result(sweep(SCHEMA)), width, color=False) == stored
