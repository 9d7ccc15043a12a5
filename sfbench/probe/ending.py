"""A script that came to its end by itself, before the measurement was over."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from sfbench.probe.hooks.events import Update
from sfbench.probe.pace import BLOCK
from sfbench.probe.state import State
from sfbench.probe.stop import Refused

MIN_BLOCKS_WHEN_ENDED = 3
"""Train blocks without which a script that ended by itself has run too short."""
TURN_OVER, SCRIPT_OVER = 1, 2
"""What the rank whose turn it is tells those that are parked."""


def script_ended(state: State, meet: Callable[[], None], finish: Callable[[], None]) -> None:
    """The script came to its end on this rank. All ranks must come here, or the launcher acts.

    Raises:
        Refused: no step, no known loop, or too few blocks measured.
    """
    if state.refused:
        return
    state.heartbeat.phase("script-ended")
    if state.command.turn == state.rank:
        # The others are parked, and cannot come to their end: it is over for them as well.
        state.control.broadcast([SCRIPT_OVER], state.rank)
    else:
        meet()
    if state.flow.loop is None:
        _end_unknown(state)
    state.flow.settle()
    if state.command.kind == BLOCK:
        state.steps.close(state.command)
    _bring_in(state, finish)


def end_parked(state: State, finish: Callable[[], None]) -> None:
    """This rank is parked, and the script has ended on the one whose turn it is.

    Raises:
        Refused: too few blocks measured.
    """
    state.heartbeat.phase("script-ended")
    _bring_in(state, finish)


def _bring_in(state: State, finish: Callable[[], None]) -> None:
    blocks = state.command.block
    if blocks < MIN_BLOCKS_WHEN_ENDED and not state.job.probe.checks:
        # A rank that is parked has run fewer.
        steps = max(state.control.all_gather(state.steps.count))
        ended = "The script ended by itself"
        if any(state.control.all_gather(state.next_training)):
            ended = "The script trains one model after another. The first was over"
        raise Refused(
            "too-few-steps",
            f"{ended} after {steps} steps, before enough could be measured "
            "(warmup and at least three blocks). Give it more epochs, more steps or more data, or "
            "lower --seconds and --warmup.",
        )
    finish()


def _end_unknown(state: State) -> None:
    """A check judges by what there was; a measurement is refused, once all ranks are here."""
    if state.job.probe.checks and any(isinstance(e, Update) for e in state.flow.kept):
        state.flow.decide()
        return
    if any(state.control.all_gather(None)):
        raise Refused(
            "ranks-disagree",
            "The script ended without an optimizer update on this rank, while others train.",
        )
    _refuse_unknown(state)


def _refuse_unknown(state: State) -> NoReturn:
    updates = sum(1 for e in state.flow.kept if hasattr(e, "mark"))
    fetches = sum(1 for e in state.flow.kept if hasattr(e, "started"))
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
