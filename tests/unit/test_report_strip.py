"""The strip of the timeline: which steps it shows, and what stands in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from simulation import Job, swept

from sfbench.analyze.stretch import MOST_STEPS, parts_of, stretch
from sfbench.collect.result import load_result
from sfbench.common.schema import Stretch, StretchPart
from sfbench.report.strip import SHOWN, timeline_strip

GOLDEN = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"
ROW = {
    "between_s": 0.1, "other_s": 0.0, "data_wait_s": 0.2, "forward_began_s": 0.3,
    "forward_ended_s": 0.5, "before_backward_s": 0.0, "after_backward_s": 0.0, "update_s": 0.1,
    "update_ended_s": 2.0, "stall_s": 0.0,
}  # fmt: skip


def kinds(**changes: float) -> dict[str, float]:
    return {kind: end - begin for kind, begin, end in parts_of(ROW | changes) if end > begin}


def test_parts_of_a_step_fill_it() -> None:
    assert kinds() == pytest.approx(
        {"between": 0.1, "data": 0.2, "forward": 0.2, "backward": 1.4, "update": 0.1}
    )


@pytest.mark.parametrize("where", ["between_s", "before_backward_s", "after_backward_s"])
def test_a_stall_is_drawn_where_it_was(where: str) -> None:
    assert kinds(**{where: 0.25, "stall_s": 0.25})["stall"] == pytest.approx(0.25)


def test_a_rank_that_waits_for_a_stall_has_none_drawn() -> None:
    assert "stall" not in kinds(stall_s=1.0)


def test_the_steps_around_the_largest_stall_are_shown() -> None:
    job = Job(stall=lambda rank, step: 0.25 if rank == 0 and step and step % 10 == 0 else 0.0)
    analysis, _ = swept(job, seed=1, seconds=4.0, counts=(2,))
    shown = analysis.points[0].stretch

    assert shown is not None
    stalls = [rank for rank, part in zip(shown.rank, shown.part, strict=True) if part == "stall"]
    assert set(stalls) == {0}
    assert set(shown.rank) == {0, 1}
    assert shown.part.count("between") + len(stalls) <= 2 * MOST_STEPS


def test_nothing_is_shown_of_no_steps() -> None:
    analysis, _ = swept(Job(), seed=1, seconds=4.0, counts=(1,))
    assert stretch(analysis.steps[:0]) is None


def test_each_rank_has_a_row_with_the_seconds_of_each_part() -> None:
    shown = Stretch(
        rank=(0, 0, 1), part=("stall", "forward", "forward"), began_s=(0.0, 0.5, 0.0),
        ended_s=(0.5, 0.75, 0.25),
    )  # fmt: skip
    result = load_result(GOLDEN)
    (drawing,) = timeline_strip(replace(result, points=(replace(result.points[1], stretch=shown),)))

    assert drawing.grid.columns == ("rank", "forward", "stall")
    assert drawing.grid.rows == (("0", "250 ms", "500 ms"), ("1", "250 ms", "0 s"))


def test_every_part_has_a_name() -> None:
    assert set(SHOWN) == set(get_args(StretchPart))
