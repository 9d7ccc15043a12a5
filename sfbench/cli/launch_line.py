"""What a launch does, on stderr: animated if that is a terminal, else a line at its end."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from rich.console import Console

from sfbench.common import units
from sfbench.launch.outcome import LaunchOutcome
from sfbench.launch.outcome import Progress as LaunchProgress
from sfbench.plan.sweep_plan import LaunchPlan

FIRST_START = "starting; torch is imported once, for all launches"
"""The first launch waits for that, and says so."""
OfLaunches = TypeVar("OfLaunches", bound="LaunchLine")


class LaunchLine:
    """Shows the title of what runs, its phase and samples/s."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._animated = console.is_terminal and not console.is_dumb_terminal
        self._status = console.status("starting")
        self._title = ""

    def __enter__(self: OfLaunches) -> OfLaunches:
        if self._animated:
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._status.stop()

    def told(self, text: str) -> None:
        """Say news between launches."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def launch_started(self, launch: LaunchPlan) -> None:
        """A launch begins."""
        first = launch.index == 0
        self._status.update(f"{self._title}: {FIRST_START if first else 'starting'}")
        if first and not self._animated:
            self.told(f"{self._title}: {FIRST_START}")

    def progressed(self, progress: LaunchProgress) -> None:
        """What it does now."""
        text = f"{self._title}: {progress.phase}, step {progress.steps}"
        if progress.samples_per_s > 0:  # nan until something was measured
            text += f", {units.rate(progress.samples_per_s)} samples/s"
        self._status.update(text)

    def launch_ended(self, launch: LaunchPlan, outcome: LaunchOutcome) -> None:
        """Say how it went, if nothing is animated; a failure is always said."""
        if not self._animated or outcome.status != "ok":
            how = "ended" if outcome.status == "ok" else outcome.status
            self.told(f"{self._title}: {how} after {units.duration(outcome.wall_s)}")
