"""What is looked after while a launch runs on several nodes."""

from __future__ import annotations

import time
from collections.abc import Callable

from sfbench.launch.meeting import FAILURE, Meeting, NodeLostError, launch_prefix
from sfbench.launch.outcome import LaunchError, LaunchOutcome, failure_of, failure_text

_HEAR_S = 5.0
"""A launch that was told of a lost node may end by itself for so long."""
_END_S = 15.0
"""And one that was told of a failure: its ranks may need TERM, KILL, and to be read."""


class ToldError(Exception):
    """A launch that was told of a failure elsewhere did not end by itself."""

    def __init__(self, error: LaunchError) -> None:
        super().__init__(error.message)
        self.error = error


class Told:
    """Ends a launch that another node's failure does not reach: one that waits inside torch.

    The agents of a launch meet through the store before they start ranks, and there torch waits for
    the whole time-out.
    """

    def __init__(self, meeting: Meeting, run_id: str) -> None:
        self._meeting, self._key = meeting, f"{launch_prefix(run_id)}/{FAILURE}"
        self._since_s: float | None = None

    def __call__(self) -> None:
        """Raises ``ToldError``."""
        if self._since_s is None:
            if self._meeting.has(self._key):
                self._since_s = time.monotonic()
        elif time.monotonic() - self._since_s > _END_S:
            raise ToldError(failure_of(self._meeting.get(self._key)))


def in_turn(*looks: Callable[[], None]) -> Callable[[], None]:
    """All of them, as one."""

    def look() -> None:
        for each in looks:
            each()

    return look


def tell_failure(meeting: Meeting, run_id: str, error: LaunchError) -> None:
    """All nodes of a launch hear of a failure, unless they have heard of another before."""
    meeting.put_first(f"{launch_prefix(run_id)}/{FAILURE}", failure_text(error))


def failed(error: LaunchError, start_s: float) -> LaunchOutcome:
    """The outcome of a launch that was not begun, or ended from here."""
    return LaunchOutcome(
        status="failed",
        record=None,
        error=error,
        notes=(),
        start_s=start_s,
        wall_s=time.monotonic() - start_s,
    )


class LossWatch:
    """Looks after the other nodes while a launch runs."""

    def __init__(self, meeting: Meeting, others: range, tell: Callable[[int], None]) -> None:
        self._meeting, self._others, self._tell = meeting, others, tell
        self.lost = 0
        self._told_s: float | None = None

    def __call__(self) -> None:
        if self._told_s is not None:
            if time.monotonic() - self._told_s > _HEAR_S:
                raise NodeLostError(f"node {self.lost} is lost")
            return
        for node in self._others:
            if self._meeting.why_lost(node) is not None:
                self.lost, self._told_s = node, time.monotonic()
                self._tell(node)
                return
