"""How many updates a step has had, told from events that are not summed up yet. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sfbench.probe.hooks.events import Event, Fetch, Forward, Update
from sfbench.probe.loop.discovery import Loop


def updates_in_step(events: Sequence[Event], loop: Loop, before: int, after_update: bool) -> int:
    """Updates by the loop's anchor since a step began, those of steps that they ended with them.

    A step begins with the first fetch after an update (the first forward if nothing is fetched),
    unless the batch before is still being trained on. ``before``: updates of the step under way
    before the events; ``after_update``: nothing but these has come since an update.
    """
    made, begins = 0, False
    opens = Forward if loop.primary is None else Fetch
    for event in reversed(events):
        kind = type(event)
        if kind is Update:
            if begins:
                return made
            made += event.key == loop.anchor
        elif kind is opens and event.grad:
            begins = True
        elif kind is Forward and event.grad:
            begins = False
    return made if begins and after_update else made + before
