"""The registry of the step's parts: whatever is said of parts follows from it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from sfbench.analyze.cycles import Cycles
from sfbench.analyze.parts import COMPUTE, PARTS, Part
from sfbench.analyze.quantities import quantities
from sfbench.collect.result import load_result
from sfbench.common.schema import TimeShare
from sfbench.diagnose.causes import BY_PART
from sfbench.gating.gate_report import nothing_measured
from sfbench.report.html import render_html

GOLDEN = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"


def a_cycle() -> Cycles:
    """Three cycles alike of two ranks, every rung."""
    row, table = np.ones(3), np.ones((3, 2))
    return Cycles(
        launch=np.zeros(3, dtype=np.int64),
        train_s=row,
        cached_s=row,
        slowest_s=row,
        unsynced_s=table,
        solo_s=table,
    )


def test_each_part_is_a_field_of_the_document_and_no_other() -> None:
    assert {part.id for part in PARTS} == {field.name for field in fields(TimeShare)}
    assert set(nothing_measured()) == {part.id for part in PARTS}


def test_the_terms_of_all_formulas_cancel_to_the_step_and_its_stalls() -> None:
    signs: dict[str, int] = {}
    for part in PARTS:
        for place, term in enumerate(part.terms):
            signs[term] = signs.get(term, 0) + (-1 if place else 1)

    assert {term: sign for term, sign in signs.items() if sign} == {"train": 1, "stalls": 1}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.id)
def test_each_formula_is_made_of_known_terms(part: Part) -> None:
    assert quantities(a_cycle(), {}).part(part.terms) is not None


def test_each_part_but_computing_has_its_diagnosis() -> None:
    assert {part for part, _ in BY_PART} == set(PARTS) - {COMPUTE}


def test_each_part_has_its_colours_on_the_page() -> None:
    page = render_html([load_result(GOLDEN)])
    for part in PARTS:
        assert f"--{part.id}: {part.colour};" in page
        assert f"--{part.id}: {part.dark_colour};" in page
