"""A stored result that is well formed and makes no sense is refused, field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sfbench.collect.result import load_result
from sfbench.common.errors import ResultError

GOLDEN = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"
ONE = {"value": 1.0, "low": 2.0, "high": 3.0}


@pytest.mark.parametrize(
    ("place", "changes", "field"),
    [
        (0, {"devices": 0}, "points.0.devices"),
        (0, {"devices": -2}, "points.0.devices"),
        (1, {"devices": 1}, "points: a device count stands twice"),
        (1, {"status": "failed"}, "points.1.samples_per_s"),
        (1, {"samples_per_s": None}, "points.1.samples_per_s"),
        (1, {"samples_per_s": {**ONE, "value": 0.0}}, "points.1.samples_per_s.value"),
        (1, {"samples_per_s": {**ONE, "value": -5.0}}, "points.1.samples_per_s.value"),
        (1, {"samples_per_s": {**ONE, "value": 1e308}}, "points.1.samples_per_s.value"),
        (1, {"efficiency": ONE}, "points.1.efficiency"),
        (1, {"step_quantiles": {"q": [], "step_s": []}}, "points.1.step_quantiles"),
    ],
)
def test_the_field_is_named(
    tmp_path: Path, place: int, changes: dict[str, Any], field: str
) -> None:
    document = json.loads(GOLDEN.read_text())
    document["points"][place] |= changes
    (tmp_path / "sweep.json").write_text(json.dumps(document))
    with pytest.raises(ResultError, match=field):
        load_result(tmp_path)
