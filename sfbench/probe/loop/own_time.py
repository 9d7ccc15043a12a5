"""When a step's parts began and ended on the host, and what of it is the script's own. Pure.

The time between forward and update that is neither backward nor update is the script's own, as that
between two steps is: it draws, logs, clips or sleeps there. What it spends in collectives of its
own is not: there it may wait for other ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sfbench.probe.hooks.events import Met, Update


class Span(NamedTuple):
    """From ``began`` to ``ended``; empty where it ends before it begins."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(0.0, self.ended - self.began)


class OwnInside(NamedTuple):
    """Seconds of one step."""

    before_backward_s: float = 0.0
    """From the last forward to the backward after it."""
    after_backward_s: float = 0.0
    """From the last backward to the update."""
    met_s: float = 0.0
    """Spent in collectives of the script's own, in these two and between the steps."""


class HostTimes(NamedTuple):
    """When a step's parts began and ended on the host, in ``time.perf_counter()`` seconds."""

    began: float = 0.0
    """The update before it had ended, or the block had begun."""
    between_s: float = 0.0
    """From there to the first fetch or forward: the script's own time between two steps."""
    forward_began: float = 0.0
    """The first training forward; 0 without any."""
    forward_ended: float = 0.0
    """The last one."""
    update_ended: float = 0.0
    saved_s: float = 0.0
    """Of ``other_s``, what was spent on saving."""
    passes: int = 0
    """Passes over the training data that began."""
    inside: OwnInside = OwnInside()


def inside(
    between: Span, forward_ended: float, update: Update, met: Sequence[Met] = ()
) -> OwnInside:
    """``between``: the script's own time before the step's first fetch or forward."""
    before = after = Span(0.0, 0.0)
    if 0.0 < forward_ended <= update.backward_began:
        before = Span(forward_ended, update.backward_began)
        after = Span(update.backward_ended, update.began)
    shared = sum(_shared(span, one) for one in met for span in (between, before, after))
    return OwnInside(before.seconds, after.seconds, shared)


def _shared(span: Span, met: Met) -> float:
    return Span(max(span.began, met.began), min(span.ended, met.ended)).seconds
