"""What a tune tells while it runs, to whoever shows it."""

from __future__ import annotations

from typing import Protocol

from sfbench.run.observer import Observer, SilentObserver

AS_IT_IS = "the job as it is"
"""What is launched where no settings are tried."""


class TuneObserver(Observer, Protocol):
    """What a tune tells while it runs, beside its launches."""

    def trial_started(self, settings: str, round_: int) -> None:
        """Settings are launched in a round, counted from 0."""
        ...

    def told(self, text: str) -> None:
        """News between launches."""
        ...


class SilentTuneObserver(SilentObserver):
    """Tells nobody."""

    def trial_started(self, settings: str, round_: int) -> None:
        """Nothing."""

    def told(self, text: str) -> None:
        """Nothing."""
