"""Live progress of a gate on stderr."""

from __future__ import annotations

from sfbench.cli.launch_line import LaunchLine
from sfbench.gating.gate_report import ArmName


class PairObserver(LaunchLine):
    """Shows pair and side."""

    def pair_started(self, arm: ArmName, pair: int) -> None:
        """Name the pair and the side."""
        self._title = f"pair {pair + 1}, {arm}"

    def launch_repeated(self, reason: str, left: int) -> None:
        """Say that what ended well gave no figure all the same."""
        tries = "try" if left == 1 else "tries"
        self.told(f"{self._title}: {reason}, made again ({left} {tries} left)")
