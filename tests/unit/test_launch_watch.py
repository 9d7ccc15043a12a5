"""When ranks last showed progress, on a clock that the test holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfbench.common.schema import HEARTBEAT_COLUMNS, PHASES
from sfbench.launch.logs import last_lines
from sfbench.launch.supervisor import progress
from sfbench.launch.watch import Watch

NAN = float("nan")


def table(*steps: float) -> npt.NDArray[np.float64]:
    """A heartbeat table with steps and an unknown half-width for each rank."""
    beats = np.zeros((len(steps), len(HEARTBEAT_COLUMNS)))
    beats[:, HEARTBEAT_COLUMNS.index("steps")] = steps
    beats[:, HEARTBEAT_COLUMNS.index("half_width")] = NAN
    return beats


def test_time_counts_from_the_start() -> None:
    watch = Watch(2, 100.0)

    assert (watch.idle_s(103.0), watch.quiet_s(103.0, 1)) == (3.0, 3.0)


def test_a_step_of_any_rank_is_progress() -> None:
    watch = Watch(2, 0.0)
    watch.see(1.0, table(0, 0), (0, 0))
    watch.see(5.0, table(0, 1), (0, 0))

    assert watch.idle_s(6.0) == 1.0
    assert [watch.quiet_s(6.0, rank) for rank in (0, 1)] == [5.0, 1.0]


def test_a_growing_log_is_progress_before_the_first_step() -> None:
    watch = Watch(2, 0.0)
    watch.see(1.0, table(0, 0), (10, 10))
    watch.see(4.0, table(0, 0), (10, 25))

    assert watch.idle_s(6.0) == 2.0


def test_a_growing_log_is_no_progress_once_steps_were_seen() -> None:
    watch = Watch(2, 0.0)
    watch.see(1.0, table(3, 3), (10, 10))
    watch.see(4.0, table(3, 3), (10, 25))

    assert watch.idle_s(6.0) == 5.0
    assert watch.quiet_s(6.0, 1) == 5.0


def test_updates_before_the_loop_is_known_are_steps() -> None:
    beats = table(0, 0)
    beats[0, HEARTBEAT_COLUMNS.index("in_step")] = -1.0
    watch = Watch(2, 0.0)
    watch.see(1.0, beats, (10, 10))
    watch.see(4.0, beats, (10, 25))

    assert watch.idle_s(6.0) == 5.0


def test_collectives_beside_the_steps_are_no_progress() -> None:
    watch, beats = Watch(1, 0.0), table(3)
    watch.see(1.0, beats, (0,))
    beats[0, HEARTBEAT_COLUMNS.index("sync_points")] = 7.0
    watch.see(4.0, beats, (0,))

    assert watch.idle_s(6.0) == 5.0


def test_a_log_that_grows_for_ever_ends_as_well() -> None:
    watch = Watch(1, 0.0, log_s=50.0)
    for now_s in range(1, 100):
        watch.see(float(now_s), table(0), (now_s,))

    assert watch.idle_s(100.0) == 51.0


def test_a_heartbeat_that_stays_unknown_is_no_progress() -> None:
    watch = Watch(1, 0.0)
    watch.see(1.0, table(3), (0,))
    watch.see(9.0, table(3), (0,))

    assert watch.idle_s(9.0) == 8.0


def test_computing_keeps_a_rank_from_being_quiet_but_is_no_progress() -> None:
    watch = Watch(1, 0.0)
    watch.see_cpu(1.0, 0, 20.0)
    watch.see_cpu(2.0, 0, 20.9)

    assert (watch.quiet_s(3.0, 0), watch.idle_s(3.0)) == (1.0, 3.0)


def test_the_little_that_waiting_uses_is_not_computing() -> None:
    watch = Watch(1, 0.0)
    watch.see_cpu(1.0, 0, 20.0)
    watch.see_cpu(2.0, 0, 20.03)

    assert watch.quiet_s(3.0, 0) == 3.0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=20))
def test_no_rank_was_quiet_for_less_time_than_all_were_idle(seen: list[tuple[int, int]]) -> None:
    watch = Watch(2, 0.0)
    for now_s, steps in enumerate(seen, start=1):
        watch.see(float(now_s), table(*steps), (0, 0))
    end_s = float(len(seen))

    assert watch.idle_s(end_s) == min(watch.quiet_s(end_s, rank) for rank in (0, 1))


def test_progress_is_a_row_of_the_heartbeat_table_by_name() -> None:
    told = progress([4.0, 12.0, 800.0, 0.02, 3.5, 10.0, 1.0, 2.0, 7.0, 0.0])

    assert (told.phase, told.steps, told.samples_per_s) == ("measuring", 12, 800.0)
    assert (told.half_width, told.measured_s, told.budget_s) == (0.02, 3.5, 10.0)


def test_last_lines_of_a_log_do_not_steer_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text(
        "first\r\n\x1b[31mred\x1b[0m \x1b]0;title\x07\x00done\n10 %\r20 %\n ::error::x\n"
    )
    assert last_lines(log) == ("first", "red done", "10 %", "20 %", " .::error::x")


def beside_an_end(**columns: float) -> npt.NDArray[np.float64]:
    """Rank 0's script has ended after 20 updates; the columns are rank 1's."""
    beats = table(20, 20)
    beats[0, HEARTBEAT_COLUMNS.index("phase")] = PHASES.index("script-ended")
    beats[0, HEARTBEAT_COLUMNS.index("in_step")] = -20.0
    for name, value in columns.items():
        beats[1, HEARTBEAT_COLUMNS.index(name)] = value
    return beats


@pytest.mark.parametrize(
    ("columns", "quiet_s"),
    [
        ({"in_step": 21.5}, 8.0),  # in a step that rank 0 will never make
        ({"in_step": 20.5}, 1.0),  # in one that it has made
        ({"in_step": -20.0}, 1.0),  # in none
        ({"in_step": -21.0}, 8.0),  # its host is through with that step, and its device is not
        ({"in_step": 21.5, "joined": 1.0}, 1.0),  # DDP's Join lets it go on
    ],
)
def test_a_rank_that_spins_for_one_that_has_ended_is_quiet(
    columns: dict[str, float], quiet_s: float
) -> None:
    # GIVEN a rank that keeps a core busy, as a thread does that waits for NCCL
    watch = Watch(2, 0.0)
    watch.see(1.0, beside_an_end(**columns), (0, 0))
    for second in range(1, 9):
        watch.see_cpu(float(second), 1, float(second))
    watch.see(9.0, beside_an_end(**columns), (0, 0))
    assert watch.quiet_s(9.0, 1) == quiet_s
