"""A script that came to its end by itself, before the measurement was over."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sfbench.probe.events import Update
from sfbench.probe.pace import BLOCK
from sfbench.probe.stop import Refused

if TYPE_CHECKING:
    from sfbench.probe.session import Session

MIN_BLOCKS_WHEN_ENDED = 3
"""Train blocks without which a script that ended by itself has run too short."""
TURN_OVER, SCRIPT_OVER = 1, 2
"""What the rank whose turn it is tells those that are parked."""


def script_ended(session: Session) -> None:
    """The script came to its end on this rank. All ranks must come here, or the launcher acts.

    Raises:
        Refused: no step, no known loop, or too few blocks measured.
    """
    if session.refused:
        return
    session.heartbeat.phase("script-ended")
    if session.command.turn == session.rank:
        # The others are parked, and cannot come to their end: it is over for them as well.
        session.control.broadcast([SCRIPT_OVER], session.rank)
    else:
        session.witness.meetings.ended()
    if session.flow.loop is None:
        _end_unknown(session)
    session.flow.settle()
    if session.command.kind == BLOCK:
        session.steps.close(session.command)
    _bring_in(session)


def end_parked(session: Session) -> None:
    """This rank is parked, and the script has ended on the one whose turn it is.

    Raises:
        Refused: too few blocks measured.
    """
    session.heartbeat.phase("script-ended")
    _bring_in(session)


def _bring_in(session: Session) -> None:
    blocks = session.command.block
    if blocks < MIN_BLOCKS_WHEN_ENDED and not session.job.probe.checks:
        # A rank that is parked has run fewer.
        steps = max(session.control.all_gather(session.steps.count))
        raise Refused(
            "too-few-steps",
            f"The script ended by itself after {steps} steps, before enough could be measured "
            "(warmup and at least three blocks). Give it more epochs, more steps or more data, or "
            "lower --seconds and --warmup.",
        )
    session.finish(ended_early=True)


def _end_unknown(session: Session) -> None:
    """A check judges by what there was; a measurement is refused, once all ranks are here."""
    if session.job.probe.checks and any(isinstance(e, Update) for e in session.flow.kept):
        session.flow.decide()
        return
    if any(session.control.all_gather(None)):
        raise Refused(
            "ranks-disagree",
            "The script ended without an optimizer update on this rank, while others train.",
        )
    _refuse_unknown(session)


def _refuse_unknown(session: Session) -> NoReturn:
    updates = sum(1 for e in session.flow.kept if hasattr(e, "mark"))
    fetches = sum(1 for e in session.flow.kept if hasattr(e, "started"))
    if updates:
        raise Refused(
            "too-few-steps",
            f"The script ended by itself after {updates} optimizer updates, too few to find "
            "its step. Give it more epochs, more steps or more data.",
        )
    raise Refused(
        "no-steps",
        f"The script ended without a single optimizer update ({fetches} batches were fetched). "
        "Point sfbench at a script that trains in its own process under torchrun.",
    )
