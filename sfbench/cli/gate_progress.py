"""Live progress of a gate on stderr: animated if that is a terminal, else a line per launch."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console

from sfbench.common import units
from sfbench.gating.gate_report import ArmName
from sfbench.launch.outcome import LaunchOutcome
from sfbench.launch.outcome import Progress as LaunchProgress
from sfbench.plan.sweep_plan import LaunchPlan


class PairObserver:
    """Shows pair, side, phase and samples/s."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._animated = console.is_terminal and not console.is_dumb_terminal
        self._status = console.status("starting")
        self._title = ""

    def __enter__(self) -> PairObserver:
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

    def pair_started(self, arm: ArmName, pair: int) -> None:
        """Name the pair and the side."""
        self._title = f"pair {pair + 1}, {arm}"

    def launch_started(self, launch: LaunchPlan) -> None:
        """A launch begins."""
        self._status.update(f"{self._title}: starting")

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
            self._say(f"{how} after {units.duration(outcome.wall_s)}")

    def launch_repeated(self, reason: str, left: int) -> None:
        """Say that what ended well gave no figure all the same."""
        self._say(f"{reason}, made again ({left} {'try' if left == 1 else 'tries'} left)")

    def _say(self, text: str) -> None:
        self._console.print(f"{self._title}: {text}", highlight=False, markup=False, soft_wrap=True)
