"""Ends a launch of a tune that takes too long, or too much memory, whether it goes on or hangs."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from sfbench.common.units import bytes_
from sfbench.launch.outcome import LaunchOutcome, Progress
from sfbench.plan.sweep_plan import LaunchPlan
from sfbench.run.observer import Observer
from sfbench.run.preflight import available_bytes

SPARE_PART, SPARE_BYTES = 0.05, 1 << 30
"""A trial leaves this part of the machine's memory free, at most so much: what runs beside it, and
the launcher itself, are not to be killed for it."""


class TrialTooLong(Exception):
    """A launch goes on and on."""


class OutOfTime(Exception):
    """The budget ended while a launch of the job as it is ran."""


class TooMuchMemory(Exception):
    """A trial left too little memory for anything else."""


class LaunchWatch:
    """The observer of one launch, asked again and again while it runs.

    Args:
        observer: is told what happens.
        until_s: by the monotonic clock; None: as long as it takes.
        late: what is raised then.
        trial: memory is watched.
        free_bytes: tells what there is.
    """

    def __init__(
        self,
        observer: Observer,
        until_s: float | None,
        late: type[Exception],
        *,
        trial: bool,
        free_bytes: Callable[[], int] = available_bytes,
    ) -> None:
        self._observer = observer
        self._until_s = until_s
        self._late = late
        self._free_bytes = free_bytes
        self._before = free_bytes() if trial else None
        self.least = self._before
        """Memory that was free when it was scarcest; None: not looked at."""

    @property
    def taken_bytes(self) -> int | None:
        """Most memory that the launch took, as far as that was seen."""
        if self._before is None or self.least is None:
            return None
        return self._before - self.least

    def check(self) -> None:
        """Look at the clock and at the memory.

        Raises:
            TrialTooLong, OutOfTime: what ``late`` is.
            TooMuchMemory: less than the spare part is left, and was not before.
        """
        if self._until_s is not None and time.monotonic() > self._until_s:
            raise self._late
        if self._before is None or self.least is None:
            return
        free = self._free_bytes()
        self.least = min(self.least, free)
        if free < spare_bytes() <= self._before:
            raise TooMuchMemory(
                f"ended, since {bytes_(free)} of memory were left on this machine, of "
                f"{bytes_(self._before)} that were free before it"
            )

    def launch_started(self, launch: LaunchPlan) -> None:
        """Pass it on."""
        self._observer.launch_started(launch)

    def progressed(self, progress: Progress) -> None:
        """Pass it on, if the launch may go on."""
        self.check()
        self._observer.progressed(progress)

    def launch_ended(self, launch: LaunchPlan, outcome: LaunchOutcome) -> None:
        """Pass it on."""
        self._observer.launch_ended(launch, outcome)


def spare_bytes() -> int:
    """Memory that a trial has to leave."""
    return int(min(SPARE_BYTES, SPARE_PART * psutil.virtual_memory().total))
