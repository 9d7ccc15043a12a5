"""docs/results.md names every field of sweep.json and every column of steps.parquet."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from sfbench.analyze.parts import PARTS
from sfbench.collect.frames import FRAME_COLUMNS
from sfbench.common import schema

TEXT = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
STATISTICS = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text()

SECTIONS = {
    "The sweep": schema.SweepResult,
    "points: one for each device count": schema.Point,
    "An interval": schema.Interval,
    "A time share": schema.Share,
    "ranks": schema.RankResult,
    "step_quantiles": schema.StepQuantiles,
    "beginning": schema.Beginning,
    "own_steps: what each rank needs without gradient sync": schema.OwnSteps,
    "stretch: a few steps of all ranks side by side": schema.Stretch,
    "launches": schema.LaunchSummary,
    "loop: what was understood of the training loop": schema.LoopInfo,
    "diagnoses: biggest regain first": schema.Diagnosis,
    "checks": schema.CheckResult,
    "environment": schema.Environment,
    "schedule: how the sweep divided its time": schema.Schedule,
}


def names(section: str) -> set[str]:
    """What stands in code in the first column of a section's table."""
    body = re.split(rf"^#+ {re.escape(section)}$", TEXT, flags=re.MULTILINE)[1]
    body = re.split(r"^#", body, flags=re.MULTILINE)[0]
    cells = [line.split("|")[1] for line in body.splitlines() if line.startswith("|")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_field_is_documented_and_no_other(section: str) -> None:
    assert names(section) == {field.name for field in dataclasses.fields(SECTIONS[section])}


def test_what_the_report_draws_is_documented() -> None:
    drawn = (schema.BatchTime, schema.AllReduceTime)
    fields = {field.name for one in drawn for field in dataclasses.fields(one)}
    assert names("batch_times and all_reduce") == fields


def test_every_column_is_documented_and_no_other() -> None:
    assert names("steps.parquet") == set(FRAME_COLUMNS)


def test_every_rung_is_documented() -> None:
    assert all(re.search(rf"\b{rung}\b", TEXT) for rung in schema.RUNGS)


def test_every_time_share_has_its_formula() -> None:
    table = re.findall(r"^\| (\w+) \|", STATISTICS, re.MULTILINE)
    ids = {part.id for part in PARTS}
    assert ids == {field.name for field in dataclasses.fields(schema.TimeShare)}
    assert ids <= set(table)


def test_the_history_ends_with_this_version() -> None:
    history = TEXT.split("## History of the format")[1]
    assert re.findall(r"^\| (\d+) \|", history, re.MULTILINE)[-1] == str(schema.SCHEMA)
