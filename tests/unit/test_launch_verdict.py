"""What a launch comes to, from how its ranks ended."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfbench.common.schema import PHASES, RankFailure
from sfbench.launch.blame import Blame, LaunchEnd, RankEnd, behind, culprit, how, judge
from sfbench.launch.outcome import LaunchError
from sfbench.launch.stop_rules import StopCause

KILLED = -int(signal.SIGKILL)
ABORTED = -int(signal.SIGABRT)


def rank_end(rank: int, exit_code: int | None = None, **rest: object) -> RankEnd:
    plain = RankEnd(
        rank=rank,
        exit_code=exit_code,
        phase="measuring",
        steps=5,
        log=f"round0-devices2/rank{rank}.log",
        last_lines=(f"last line of {rank}",),
    )
    return replace(plain, **rest)  # type: ignore[arg-type]


def launch_end(cause: StopCause, *ranks: RankEnd, **rest: object) -> LaunchEnd:
    plain = LaunchEnd(
        cause=cause,
        devices=len(ranks),
        ranks=ranks,
        first_noted=None,
        record=None,
        complete=False,
        timeout_s=300.0,
        oom_kills=0,
    )
    return replace(plain, **rest)  # type: ignore[arg-type]


def noted(rank: int, kind: str = "exception", message: str = "ValueError: 7") -> RankFailure:
    return RankFailure(rank=rank, kind=kind, message=message, script_fault=kind == "exception")


def error_of(end: LaunchEnd) -> LaunchError:
    error = judge(end).error
    assert error is not None
    return error


def test_a_complete_record_wins_over_how_ranks_end() -> None:
    ranks = (rank_end(0, 0), rank_end(1, ABORTED), rank_end(2))

    verdict = judge(
        launch_end(StopCause.OVERSTAYED, *ranks, complete=True, record=Path("record.npz"))
    )

    assert verdict == Blame(
        status="ok",
        error=None,
        notes=(
            "rank 1 was killed by SIGABRT after the record was complete",
            "rank 2 was ended: it stayed 10 s after the record",
        ),
    )


def test_a_rank_that_exits_is_named() -> None:
    verdict = judge(launch_end(StopCause.FAILED, rank_end(0), rank_end(1, 3)))

    assert verdict == Blame(
        status="failed",
        error=LaunchError(
            kind="exit",
            rank=1,
            message=(
                "At 2 devices rank 1 ended with exit code 3 after step 5. Its last lines tell more."
            ),
            last_lines=("last line of 1",),
            log="round0-devices2/rank1.log",
            script_fault=True,
        ),
    )


def test_an_exception_is_told_by_the_note_of_the_rank() -> None:
    ranks = (rank_end(0), rank_end(1, 1, note=noted(1)))

    error = error_of(launch_end(StopCause.FAILED, *ranks, first_noted=1))

    assert error == LaunchError(
        kind="exception",
        rank=1,
        message="At 2 devices rank 1 raised ValueError: 7",
        last_lines=("last line of 1",),
        log="round0-devices2/rank1.log",
        script_fault=True,
    )


def test_what_cannot_be_measured_keeps_its_kind_and_is_no_fault_of_the_script() -> None:
    note = noted(0, "not-wrapped", "The model is not wrapped by DDP.")

    error = error_of(launch_end(StopCause.LEFT, rank_end(0, 0, note=note), first_noted=0))

    assert (error.kind, error.script_fault) == ("not-wrapped", False)
    assert error.message == ("At 1 device rank 0 could not go on: The model is not wrapped by DDP.")


def test_no_record_no_note_and_exit_code_0_is_no_steps() -> None:
    error = error_of(launch_end(StopCause.LEFT, rank_end(0, 0, steps=0), rank_end(1, 0, steps=0)))

    assert (error.kind, error.rank, error.script_fault) == ("no-steps", 0, False)
    assert "rank 0 left with exit code 0 before its first step" in error.message


def test_leaving_at_once_in_the_middle_is_not_told_as_no_step() -> None:
    error = error_of(launch_end(StopCause.LEFT, rank_end(0, 0, steps=40), rank_end(1, 0, steps=40)))

    assert (error.kind, error.rank, error.script_fault) == ("exit", 0, False)
    assert "left with exit code 0 after step 40" in error.message


def test_one_rank_that_leaves_at_once_is_not_called_uneven_inputs() -> None:
    error = error_of(launch_end(StopCause.DISAGREE, rank_end(0), rank_end(1, 0)))

    assert (error.kind, error.rank, error.script_fault) == ("exit", 1, True)
    assert error.message.startswith("At 2 devices rank 1 left with exit code 0 after step 5")
    assert "uneven inputs" not in error.message


def test_a_crash_is_told_with_its_place() -> None:
    crashed = rank_end(1, -int(signal.SIGSEGV), frame="view at a.py:3, called by load at b.py:7")
    error = error_of(launch_end(StopCause.FAILED, rank_end(0), crashed))

    assert error.message.startswith(
        "At 2 devices rank 1 was killed by SIGSEGV after step 5, in view at a.py:3, called by "
        "load at b.py:7."
    )


def test_a_bus_error_is_a_full_disk_and_no_fault_of_the_script() -> None:
    error = error_of(launch_end(StopCause.FAILED, rank_end(0, -int(signal.SIGBUS))))

    assert (error.kind, error.script_fault) == ("no-room", False)
    assert "/dev/shm" in error.message


@pytest.mark.parametrize(
    "message",
    [
        "OSError: [Errno 28] No space left on device: '/data/a'",
        "RuntimeError: unable to write to file </torch_9_0>: No space left on device (28)",
        "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error.",
    ],
)
def test_a_full_disk_is_no_fault_of_the_script(message: str) -> None:
    ranks = (rank_end(0, 1, note=noted(0, message=message)),)
    error = error_of(launch_end(StopCause.FAILED, *ranks, first_noted=0, full=("/dev/shm",)))

    assert (error.kind, error.script_fault) == ("no-room", False)
    assert message in error.message
    assert "/dev/shm is full" in error.message


def test_a_rank_that_could_not_even_leave_a_note_for_want_of_room_is_not_blamed() -> None:
    ranks = (rank_end(0, 1), rank_end(1, None))
    error = error_of(launch_end(StopCause.FAILED, *ranks, full=("/tmp",)))

    assert (error.kind, error.rank, error.script_fault) == ("no-room", 0, False)
    assert error.message.endswith("/tmp is full: make room there.")
    assert error_of(launch_end(StopCause.FAILED, *ranks)).script_fault


def test_a_launch_whose_folder_was_removed_is_no_fault_of_the_script() -> None:
    ranks = (rank_end(0, 1), rank_end(1, None))
    error = error_of(launch_end(StopCause.FAILED, *ranks, folder_gone="/tmp/launch"))

    assert (error.kind, error.script_fault) == ("launcher", False)
    assert error.message.endswith("/tmp/launch was removed while the ranks needed it.")


def test_ranks_that_fell_with_the_server_that_forked_them_are_not_blamed() -> None:
    ranks = (rank_end(0, KILLED), rank_end(1, KILLED))
    error = error_of(launch_end(StopCause.FAILED, *ranks, server_gone=True))

    assert (error.kind, error.rank, error.script_fault) == ("launcher", None, False)
    assert "forked from" in error.message


@pytest.mark.parametrize(
    ("oom_kills", "why"),
    [(1, "out of memory"), (0, "not for memory"), (None, "possibly for memory")],
)
def test_a_kill_says_whether_it_was_for_memory(oom_kills: int | None, why: str) -> None:
    error = error_of(launch_end(StopCause.FAILED, rank_end(0, KILLED), oom_kills=oom_kills))

    assert (error.kind, error.rank, error.script_fault) == ("signal", 0, True)
    assert error.message.startswith("At 1 device rank 0 was killed by SIGKILL")
    assert why in error.message


def test_a_worker_killed_for_memory_is_told_beside_the_exception() -> None:
    ranks = (rank_end(0, 1, note=noted(0, message="RuntimeError: DataLoader worker killed")),)

    error = error_of(launch_end(StopCause.FAILED, *ranks, first_noted=0, oom_kills=1))

    assert error.message == (
        "At 1 device rank 0 raised RuntimeError: DataLoader worker killed "
        "(The kernel killed a process for lack of memory.)"
    )


def test_a_silent_death_comes_before_what_others_say_about_it() -> None:
    ranks = (rank_end(0, 1, note=noted(0)), rank_end(1, KILLED))

    first = culprit(launch_end(StopCause.FAILED, *ranks, first_noted=0))

    assert first is ranks[1]


def test_among_noted_failures_the_oldest_counts() -> None:
    ranks = (rank_end(0, 1, note=noted(0)), rank_end(1, note=noted(1)))

    first = culprit(launch_end(StopCause.FAILED, *ranks, first_noted=1))

    assert first is ranks[1]


def test_uneven_inputs_are_named_with_steps_and_remedy() -> None:
    ranks = (rank_end(0), rank_end(1, phase="script-ended"), rank_end(2))

    error = error_of(launch_end(StopCause.DISAGREE, *ranks))

    assert (error.kind, error.rank, error.script_fault) == ("ranks-disagree", 1, True)
    assert error.message == (
        "At 3 devices rank 1's script ended after step 5 while ranks 0, 2 wait in step 6: uneven "
        "inputs. Give all ranks the same number of batches, for example by drop_last=True in "
        "DistributedSampler and DataLoader."
    )


def test_a_rank_that_died_when_done_is_told_if_the_record_never_comes() -> None:
    ranks = (rank_end(0), rank_end(1, ABORTED, phase="done"))

    error = error_of(launch_end(StopCause.DISAGREE, *ranks))

    assert (error.kind, error.rank) == ("signal", 1)
    assert error.message == (
        "At 2 devices rank 1 was killed by SIGABRT while rank 0 waits in step 6."
    )


def test_a_timeout_names_the_rank_behind_and_where_it_is() -> None:
    ranks = (
        rank_end(0, frame="barrier at distributed_c10d.py:4800", waits=True),
        rank_end(1, frame="load at train.py:12"),
    )

    verdict = judge(launch_end(StopCause.TIMEOUT, *ranks))

    assert verdict == Blame(
        status="timeout",
        error=LaunchError(
            kind="timeout",
            rank=1,
            message=(
                "At 2 devices no rank made progress for 300 s. rank 1 is behind: rank 1 in phase "
                "measuring, 5 steps done, in load at train.py:12; rank 0 in phase measuring, "
                "5 steps done, in barrier at distributed_c10d.py:4800. The stacks of all threads "
                "are at the end of each rank's log. If a step may take that long, give a larger "
                "--timeout."
            ),
            last_lines=("last line of 1",),
            log="round0-devices2/rank1.log",
            script_fault=True,
        ),
    )


def test_a_timeout_in_which_all_are_alike_names_no_rank() -> None:
    error = error_of(launch_end(StopCause.TIMEOUT, rank_end(0), rank_end(1)))

    assert error.rank is None
    assert "None is behind the others: rank 0 in phase measuring, 5 steps done; rank 1" in (
        error.message
    )


def test_fewer_steps_then_an_earlier_phase_is_behind() -> None:
    ahead = rank_end(0, steps=6)
    later = rank_end(1, steps=5, phase="measuring")
    earlier = rank_end(2, steps=5, phase="warmup")

    assert behind([ahead, later]) == (later,)
    assert behind([ahead, later, earlier]) == (earlier,)


def test_ranks_that_are_through_are_never_behind() -> None:
    ranks = [rank_end(0), rank_end(1, 0, steps=0), rank_end(2, phase="script-ended", steps=1)]

    assert behind(ranks) == (ranks[0],)


RANKS = st.lists(
    st.builds(
        rank_end,
        st.integers(0, 600),
        st.sampled_from([None, None, 0, 1]),
        phase=st.sampled_from(PHASES),
        steps=st.integers(0, 3),
        waits=st.booleans(),
    ),
    unique_by=lambda rank: rank.rank,
)


@given(RANKS)
def test_which_ranks_are_behind_does_not_depend_on_their_order(ranks: list[RankEnd]) -> None:
    assert set(behind(ranks)) == set(behind(ranks[::-1]))


@given(RANKS.filter(len), st.sampled_from([StopCause.LEFT, StopCause.FAILED, StopCause.TIMEOUT]))
def test_without_a_record_there_is_always_an_error(ranks: list[RankEnd], cause: StopCause) -> None:
    verdict = judge(launch_end(cause, *ranks))

    assert verdict.status != "ok"
    assert verdict.error is not None
    assert verdict.error.log in {rank.log for rank in ranks}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (3, "ended with exit code 3"),
        (-11, "was killed by SIGSEGV"),
        (-int(signal.SIGRTMIN) - 3, f"was killed by signal {int(signal.SIGRTMIN) + 3}"),
    ],
)
def test_how_a_process_ended(code: int, text: str) -> None:
    assert how(code) == text


def test_an_interrupted_launch_blames_no_rank() -> None:
    verdict = judge(launch_end(StopCause.STOPPED, rank_end(0), rank_end(1)))

    assert verdict.status == "interrupted"
    assert verdict.error is not None
    assert (verdict.error.kind, verdict.error.rank) == ("interrupted", None)
