"""When what was measured is brought in before a risk. Pure: time is given."""

from __future__ import annotations

from sfbench.common.schema import RUNGS, Rung
from sfbench.probe.pace import BLOCK, Command
from sfbench.probe.replaying.resize import SCALES

SELDOM = 50.0
"""Time between two writings, in multiples of what one costs: 2 % at most."""


class SoFar:
    """Kept by rank 0, which tells the others by its command."""

    def __init__(self) -> None:
        self._tried: set[Rung] = set()
        self._ended_s = 0.0
        self._cost_s = 0.0

    def due(self, command: Command, now_s: float, *, on_device: bool) -> bool:
        """Whether it is written before this command: at its rung's first time, then now and then.

        Ranks that run apart hold a copy of the weights; another batch size takes more memory, or
        may be one that the script does not take.
        """
        rung = RUNGS[command.rung]
        apart = rung not in ("train", "cached")
        if command.kind != BLOCK or not apart or not (on_device or rung in SCALES):
            return False
        first = rung not in self._tried
        self._tried.add(rung)
        return first or now_s - self._ended_s > SELDOM * self._cost_s

    def written(self, began_s: float, ended_s: float) -> None:
        """It has been."""
        self._ended_s, self._cost_s = ended_s, ended_s - began_s
