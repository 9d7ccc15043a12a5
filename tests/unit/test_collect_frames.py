"""Launch records to the step frame."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import StepTable, failed, launch_plan, launch_record, measured, outcome

from sfbench.collect.frames import FRAME_COLUMNS, read_launch, step_frame
from sfbench.common.errors import MeasureError
from sfbench.common.schema import STEP_COLUMNS, AllReduceTime, OwnCollective
from sfbench.protocol import record_file


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    own = OwnCollective(
        name="all_reduce", line="train.py:3", calls_per_step=40.0, seconds=1e-3, bytes=4
    )
    reduced = AllReduceTime(bytes=4, seconds=1e-3)
    header = launch_record(2, own_collectives=(own,), all_reduce=(reduced,))
    table = StepTable(2).block("train", [0.1] * 3).array()
    path = record_file.write(tmp_path, header, table)
    got = read_launch(launch_plan(0, 2), replace(outcome(), record=path))
    assert got.record == header
    assert got.steps is not None
    assert np.array_equal(got.steps, table)


def test_a_launch_that_failed_has_no_record() -> None:
    launch = failed(0, 2)
    assert read_launch(launch.plan, launch.outcome) == launch


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut short"])
def test_a_damaged_record_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "record.npz"
    path.write_bytes(content)
    with pytest.raises(MeasureError, match=r"2 devices, round 2: .*record\.npz cannot be read"):
        read_launch(launch_plan(3, 2, 1), replace(outcome(), record=path))


def test_rows_are_labelled_with_their_launch_and_typed() -> None:
    first = measured(0, StepTable(1).warmup(1).block("train", [0.1]))
    second = measured(1, StepTable(2).block("cached", [0.2]).solo([0.3, 0.4], cycle=0, steps=1))
    frame = step_frame([first, failed(2, 4), replace(second, plan=launch_plan(1, 2, 1))])

    assert tuple(frame.columns) == FRAME_COLUMNS
    whole = ("launch", "round", "devices", "rank", "step", "block", "cycle", "turn", "samples")
    assert all(pd.api.types.is_integer_dtype(frame[name]) for name in whole)
    assert frame["measured"].dtype == frame["warmup"].dtype == np.dtype(bool)
    assert frame["step_s"].dtype == np.dtype(float)
    seen = frame[["launch", "round", "devices", "rank", "rung", "turn", "step_s", "warmup"]]
    assert seen.to_numpy().tolist() == [
        [0, 0, 1, 0, "train", -1, 1.0, True],
        [0, 0, 1, 0, "train", -1, 0.1, False],
        [1, 1, 2, 0, "cached", -1, 0.2, False],
        [1, 1, 2, 1, "cached", -1, 0.2, False],
        [1, 1, 2, 0, "solo", 0, 0.3, False],
        [1, 1, 2, 1, "solo", 1, 0.4, False],
    ]


def test_without_a_launch_the_frame_is_empty_but_typed() -> None:
    empty, full = step_frame([]), step_frame([measured(0, StepTable(1).block("train", [0.1]))])
    assert len(empty) == 0
    assert empty.dtypes.to_dict() == full.dtypes.to_dict()


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("rank", 0.5, "rank that is no whole number"),
        ("samples", np.nan, "samples that is no whole number"),
        ("rung", 9.0, "rung outside"),
        ("rung", np.nan, "rung outside"),
    ],
)
def test_values_that_cannot_be_are_refused(column: str, value: float, message: str) -> None:
    launch = measured(0, StepTable(1).block("train", [0.1]))
    assert launch.steps is not None
    launch.steps[0, STEP_COLUMNS.index(column)] = value
    with pytest.raises(MeasureError, match=message):
        step_frame([launch])
