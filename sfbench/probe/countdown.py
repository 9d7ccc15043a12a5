"""Steps until something happens: a block's stages, and its border at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Stage(NamedTuple):
    """So many steps, and what follows them."""

    steps: int
    then: Callable[[], None]


class Countdown:
    """Hooks count one cell down; whoever finds it at 0 asks what to do."""

    def __init__(self, left: list[int]) -> None:
        self._left = left
        self._stages: deque[Stage] = deque()
        self._then: Callable[[], None] | None = None

    def start(self, stages: Sequence[Stage], steps: int) -> None:
        """Pass through the stages, then ``steps`` more until the border."""
        self._stages = deque(stages)
        self._last = steps
        self._next()

    def passes(self) -> bool:
        """A stage was over, and the next one has begun; False at the border."""
        if self._then is None:
            return False
        self._then()
        self._next()
        return True

    def _next(self) -> None:
        while self._stages and self._stages[0].steps <= 0:
            self._stages.popleft().then()
        if self._stages:
            self._left[0], self._then = self._stages.popleft()
        else:
            self._left[0], self._then = self._last, None
