"""When a launch is over, and why."""

from __future__ import annotations

import pytest

from sfbench.launch.stop_rules import ALONE_S, LEAVE_S, NOTE_S, RankView, StopCause, View, cause

TIMEOUT_S = 300.0


def rank(exit_code: int | None = None, phase: str = "measuring", quiet_s: float = 0.5) -> RankView:
    return RankView(exit_code=exit_code, phase=phase, quiet_s=quiet_s)


def view(
    *ranks: RankView,
    idle_s: float = 0.5,
    record_s: float | None = None,
    note_s: float | None = None,
    elsewhere: bool = False,
    stopped: bool = False,
) -> View:
    return View(
        ranks=ranks,
        idle_s=idle_s,
        timeout_s=TIMEOUT_S,
        record_s=record_s,
        note_s=note_s,
        elsewhere=elsewhere,
        stopped=stopped,
    )


def test_ranks_that_run_go_on() -> None:
    assert cause(view(rank(), rank())) is None


def test_all_have_left() -> None:
    assert cause(view(rank(0), rank(0))) is StopCause.LEFT


@pytest.mark.parametrize("exit_code", [1, -9])
def test_the_first_failure_ends_the_launch_at_once(exit_code: int) -> None:
    assert cause(view(rank(), rank(exit_code))) is StopCause.FAILED


def test_a_rank_that_is_done_may_die() -> None:
    assert cause(view(rank(), rank(-6, phase="done"))) is None


def test_a_record_protects_from_failures_and_gives_time_to_leave() -> None:
    ranks = (rank(), rank(-6))

    assert cause(view(*ranks, record_s=LEAVE_S)) is None
    assert cause(view(*ranks, record_s=LEAVE_S + 0.1)) is StopCause.OVERSTAYED


def test_a_noted_failure_gives_time_to_leave() -> None:
    assert cause(view(rank(), rank(), note_s=NOTE_S)) is None
    assert cause(view(rank(), rank(), note_s=NOTE_S + 0.1)) is StopCause.FAILED


@pytest.mark.parametrize("through", [rank(0), rank(phase="script-ended"), rank(-6, phase="done")])
def test_ranks_left_alone_are_given_up_when_they_stand_still(through: RankView) -> None:
    still = rank(quiet_s=ALONE_S + 0.1)

    assert cause(view(still, still, through)) is StopCause.DISAGREE
    assert cause(view(still, rank(quiet_s=ALONE_S), through)) is None


def test_ranks_that_are_all_through_may_take_their_time() -> None:
    ended = rank(phase="script-ended", quiet_s=100.0)

    assert cause(view(ended, ended, idle_s=100.0)) is None


def test_standing_still_together_is_a_timeout() -> None:
    still = rank(quiet_s=TIMEOUT_S)

    assert cause(view(still, still, idle_s=TIMEOUT_S)) is None
    assert cause(view(still, still, idle_s=TIMEOUT_S + 0.1)) is StopCause.TIMEOUT


def test_a_failure_on_another_node_ends_this_one_but_not_a_complete_record() -> None:
    assert cause(view(rank(), rank(1), elsewhere=True)) is StopCause.ELSEWHERE
    assert cause(view(rank(), elsewhere=True, record_s=1.0)) is None


def test_being_stopped_comes_first() -> None:
    assert cause(view(rank(0), rank(1), stopped=True)) is StopCause.STOPPED
