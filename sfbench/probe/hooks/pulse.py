"""What the hooks in a step share: a few cells to set, and where to tell what they saw.

No behaviour: a hook may set a cell in some fifty nanoseconds, where a call would cost ten times
that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, MutableSequence
from typing import Any

from sfbench.probe.hooks.events import Event

Tell = Callable[[Event], None]


def _nobody(event: Event) -> None:
    """Before a session has connected its hooks."""


def _nothing() -> None:
    """Before hooks on optimizers are in place."""


class Depth(threading.local):
    """How far inside of the loaders' hooks a thread is."""

    value = 0


class Pulse:
    """One per rank."""

    __slots__ = (
        "ask", "astray", "backward_began", "backward_ended", "backward_over", "begun",
        "forward_phase", "forwards", "in_backward", "in_step", "joined", "joining", "main",
        "ordinary", "row", "stepped_elsewhere", "stepping", "tell", "tell_apart", "update_began",
        "updates",
    )  # fmt: skip

    def __init__(self, row: MutableSequence[float]) -> None:
        self.main = threading.get_ident()
        """The thread that trains."""
        self.row = row
        """This rank's cells of the heartbeat."""
        self.tell: Tell = _nobody
        """Takes events that are a matter of course and end nothing."""
        self.tell_apart: Tell = _nobody
        """Takes those of them that happen in other threads."""
        self.ask: Tell = _nobody
        """Takes all others: whoever is behind it decides what they mean."""
        self.ordinary: set[Hashable] = set()
        """Loaders whose fetches are a matter of course."""
        self.updates = 0
        """Made so far, by any optimizer."""
        self.astray = 0
        """Of these, made by others since that of the optimizer that ends steps."""
        self.forwards = 0
        """Training forwards that will need all ranks, counted around."""
        self.in_step = 0.0
        """What the heartbeat says from a forward to its update."""
        self.begun = False
        """A training forward or an update has been seen."""
        self.forward_phase = False
        """No backward since the last update."""
        self.joining = False
        """Inside DDP's Join."""
        self.joined = 0.0
        """1 + updates so far in there; 0 elsewhere."""
        self.update_began = 0.0
        self.stepping = False
        """The thread that trains is inside an update that has not been told yet."""
        self.in_backward = False
        """The thread that trains is inside a backward."""
        self.stepped_elsewhere: list[tuple[Any, Any]] = []
        """Optimizers that stepped in another thread during backward, and their marks."""
        self.backward_over: Callable[[], None] = _nothing
        """Called by the thread that trains after one with such."""
        self.backward_began = 0.0
        self.backward_ended = 0.0
