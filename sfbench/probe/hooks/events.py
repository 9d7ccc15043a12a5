"""What the hooks tell: fetches, iterator starts, forwards, updates, saves. Pure values.

Times are ``time.perf_counter()`` seconds. A key names the thing an event is about; see the module
that makes it for what counts as the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple


class Fetch(NamedTuple):
    """A batch was handed out by a loader, or (samples == 0, started) its iterator was made."""

    key: Hashable
    began: float
    ended: float
    samples: int
    main: bool
    """By the thread that trains; elsewhere nobody waited for it."""
    grad: bool
    """Gradients were enabled: false inside most validation loops."""
    started: bool = False
    left: bool = False
    """With started: the loader's iterator before this one was left before its end."""
    elements: int = 0
    """Numbers in the batch's tensors; 0: nobody looked."""


class Forward(NamedTuple):
    """A wrapped model was called."""

    key: Hashable
    began: float
    ended: float
    samples: int
    grad: bool


class Update(NamedTuple):
    """An optimizer, or a scaler on its behalf, has finished a step."""

    key: Hashable
    began: float
    ended: float
    mark: Any
    """Mark of the session's clock, made right after the update."""
    late: bool = False
    """The first one of an optimizer made after the loop was known, or after the last such one."""
    backward_began: float = 0.0
    """The last backward before it."""
    backward_ended: float = 0.0


class Excluded(NamedTuple):
    """Something that is not training took the time from began to ended: a save."""

    began: float
    ended: float


class Met(NamedTuple):
    """The script has met other ranks by a collective of its own."""

    began: float
    ended: float


Event = Fetch | Forward | Update | Excluded | Met
