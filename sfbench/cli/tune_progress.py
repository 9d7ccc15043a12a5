"""Live progress of a tune on stderr."""

from __future__ import annotations

from sfbench.cli.launch_line import LaunchLine
from sfbench.common.units import things
from sfbench.launch.outcome import LaunchOutcome
from sfbench.plan.sweep_plan import LaunchPlan
from sfbench.tuning.tune_observer import AS_IT_IS


class TrialObserver(LaunchLine):
    """Shows the settings that run."""

    def trial_started(self, settings: str, round_: int) -> None:
        """Name the settings."""
        self._title = settings if settings == AS_IT_IS else f"trial of {settings}"

    def launch_started(self, launch: LaunchPlan) -> None:
        """A launch begins; those of the diagnosis have no settings."""
        self._title = self._title or f"diagnosis at {things(launch.devices, 'device')}"
        super().launch_started(launch)

    def launch_ended(self, launch: LaunchPlan, outcome: LaunchOutcome) -> None:
        """Say how it went; the next one has a title of its own."""
        super().launch_ended(launch, outcome)
        self._title = ""
