"""What a gate tells while it runs, to whoever shows it."""

from __future__ import annotations

from typing import Protocol

from sfbench.gating.gate_report import ArmName
from sfbench.run.observer import Observer, SilentObserver


class GateObserver(Observer, Protocol):
    """What a gate tells while it runs, beside its launches."""

    def pair_started(self, arm: ArmName, pair: int) -> None:
        """A side is launched as part of a pair, counted from 0."""
        ...

    def launch_repeated(self, reason: str, left: int) -> None:
        """A launch gave no figure, and is made again; ``left``: tries that remain."""
        ...


class SilentGateObserver(SilentObserver):
    """Tells nobody."""

    def pair_started(self, arm: ArmName, pair: int) -> None:
        """Nothing."""

    def launch_repeated(self, reason: str, left: int) -> None:
        """Nothing."""
