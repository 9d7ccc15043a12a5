"""What ends a launch of a tune."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sfbench.run.observer import SilentObserver
from sfbench.tuning.launch_watch import (
    LaunchWatch,
    OutOfTime,
    TooMuchMemory,
    TrialTooLong,
    spare_bytes,
)


def watch(free: Iterator[int], *, trial: bool = True, left_s: float = 1e6) -> LaunchWatch:
    until_s, late = time.monotonic() + left_s, TrialTooLong if trial else OutOfTime
    return LaunchWatch(SilentObserver(), until_s, late, trial=trial, free_bytes=lambda: next(free))


def test_a_trial_that_takes_the_machines_memory_is_ended() -> None:
    little, much = spare_bytes() - 1, 3 * spare_bytes()
    watched = watch(iter([much, much // 2, little]))
    watched.check()
    assert watched.taken_bytes == much - much // 2
    with pytest.raises(TooMuchMemory, match="of memory were left on this machine"):
        watched.check()


def test_memory_that_was_scarce_before_is_no_fault_of_the_trial() -> None:
    little = spare_bytes() - 1
    watched = watch(iter([little, little - 1]))
    watched.check()
    assert watched.taken_bytes == 1


def test_the_job_as_it_is_is_not_ended_for_its_memory() -> None:
    watched = watch(iter([]), trial=False)
    watched.check()
    assert watched.taken_bytes is None


@pytest.mark.parametrize(("trial", "late"), [(True, TrialTooLong), (False, OutOfTime)])
def test_who_is_late_is_ended(trial: bool, late: type[Exception]) -> None:
    watched = watch(iter([2**40] * 2), trial=trial, left_s=-1.0)
    with pytest.raises(late):
        watched.check()
