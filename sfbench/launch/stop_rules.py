"""While ranks run: whether the launch is over, and why. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

LEAVE_S = 10.0
"""How long ranks may take to leave once the record is complete."""
NOTE_S = 3.0
"""How long a rank that noted its failure may take to leave."""
ALONE_S = 5.0
"""How long ranks may stand still after another's script has ended."""


class StopCause(enum.Enum):
    """Why a launch is over."""

    LEFT = "all ranks left by themselves"
    OVERSTAYED = "the record is complete, but ranks stay"
    ELSEWHERE = "the launch failed on another node"
    FAILED = "a rank failed"
    DISAGREE = "a rank's script ended while others wait for it"
    TIMEOUT = "no progress"
    STOPPED = "the launcher was told to end"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """One local rank at one moment."""

    exit_code: int | None
    """None: it runs. Negative: the number of the signal that ended it."""
    phase: str
    """One of ``sfbench.common.schema.PHASES``."""
    quiet_s: float
    """Since it showed progress or last computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A launch at one moment."""

    ranks: tuple[RankView, ...]
    idle_s: float
    """Since any rank showed progress."""
    timeout_s: float
    record_s: float | None = None
    """Since the record is complete and no rank measures any more; None: it is not."""
    note_s: float | None = None
    """Since a rank noted its failure; None: none did."""
    elsewhere: bool = False
    """It failed on another node."""
    stopped: bool = False


def cause(view: View) -> StopCause | None:
    """Why the launch is over; None while it goes on."""
    if view.stopped:
        return StopCause.STOPPED
    if all(rank.exit_code is not None for rank in view.ranks):
        return StopCause.LEFT
    if view.record_s is not None:
        return StopCause.OVERSTAYED if view.record_s > LEAVE_S else None
    return StopCause.ELSEWHERE if view.elsewhere else _trouble(view)


def _trouble(view: View) -> StopCause | None:
    """What keeps ranks that run from ever making a record."""
    if any(map(_failed, view.ranks)) or (view.note_s is not None and view.note_s > NOTE_S):
        return StopCause.FAILED
    if _alone(view.ranks):
        return StopCause.DISAGREE
    return StopCause.TIMEOUT if view.idle_s > view.timeout_s else None


def _failed(rank: RankView) -> bool:
    """A rank whose part is done may end as it likes: the record tells whether it was in time."""
    return bool(rank.exit_code) and rank.phase != "done"


def _alone(ranks: tuple[RankView, ...]) -> bool:
    """Some ranks are through, the others stand still."""
    others = [rank for rank in ranks if not is_through(rank.exit_code, rank.phase)]
    return 0 < len(others) < len(ranks) and all(rank.quiet_s > ALONE_S for rank in others)


def is_through(exit_code: int | None, phase: str) -> bool:
    """Whether a rank takes no further part in the script's collectives."""
    return exit_code is not None or phase in {"done", "script-ended"}
