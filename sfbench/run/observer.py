"""What a sweep tells while it runs, to whoever shows it."""

from __future__ import annotations

from typing import Protocol

from sfbench.launch.outcome import LaunchOutcome, Progress
from sfbench.plan.sweep_plan import LaunchPlan


class Observer(Protocol):
    """What a sweep tells while it runs."""

    def launch_started(self, launch: LaunchPlan) -> None:
        """A launch begins."""
        ...

    def progressed(self, progress: Progress) -> None:
        """News from the running launch, a few times per second."""
        ...

    def launch_ended(self, launch: LaunchPlan, outcome: LaunchOutcome) -> None:
        """A launch has ended, well or not."""
        ...


class SilentObserver:
    """Tells nobody."""

    def launch_started(self, launch: LaunchPlan) -> None:
        """Nothing."""

    def progressed(self, progress: Progress) -> None:
        """Nothing."""

    def launch_ended(self, launch: LaunchPlan, outcome: LaunchOutcome) -> None:
        """Nothing."""
