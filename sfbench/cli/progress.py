"""Live progress of a sweep on stderr: animated if that is a terminal, else a line per launch."""

from __future__ import annotations

import math
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from sfbench.cli.launch_line import FIRST_START
from sfbench.common import units
from sfbench.launch.outcome import LaunchOutcome
from sfbench.launch.outcome import Progress as LaunchProgress
from sfbench.plan.rounds import expected_launches
from sfbench.plan.sweep_plan import LaunchPlan, SweepPlan


class TerminalObserver:
    """Shows device count, phase, samples/s with its interval, and the time left."""

    def __init__(self, plan: SweepPlan, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._animated = console.is_terminal and not console.is_dumb_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[what]}"),
            console=console,
            transient=True,
            disable=not self._animated,
        )
        self._task: TaskID = self._bar.add_task("sweep", total=1.0, what="")
        self._launches = expected_launches(plan)
        self._ended = 0
        self._began = time.monotonic()

    def __enter__(self) -> TerminalObserver:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def launch_started(self, launch: LaunchPlan) -> None:
        """Name the device count and the round."""
        self._title = f"devices {launch.devices}, round {launch.round + 1}"
        first = launch.index == 0
        self._bar.update(
            self._task, description=self._title, what=FIRST_START if first else "starting"
        )
        if first and not self._animated:
            self._say(f"{self._title}: {FIRST_START}")

    def progressed(self, progress: LaunchProgress) -> None:
        """Move the bar."""
        part = progress.measured_s / progress.budget_s if progress.budget_s > 0 else 0.0
        done = (self._ended + min(1.0, part)) / self._launches
        words = [f"{progress.phase}, step {progress.steps}"]
        if progress.samples_per_s > 0:
            words.append(_rate(progress))
        words.append(self._left(done))
        self._bar.update(self._task, completed=done, what=" · ".join(filter(None, words)))

    def launch_ended(self, launch: LaunchPlan, outcome: LaunchOutcome) -> None:
        """Say how it went, if nothing is animated; a failure is always said.

        Why it failed is said once, at the end, with the last lines of the log.
        """
        self._ended += 1
        failed = outcome.status != "ok"
        if not self._animated or failed:
            how = outcome.status if failed else "ended"  # what it is worth is not known yet
            text = f"{self._title}: {how} after {units.duration(outcome.wall_s)}"
            self._say(text)

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _left(self, done: float) -> str:
        spent = time.monotonic() - self._began
        if done < 0.05:
            return ""
        return f"{units.duration(spent * (1 - done) / done)} left"


def _rate(progress: LaunchProgress) -> str:
    rate = f"{units.rate(progress.samples_per_s)} samples/s"
    if math.isfinite(progress.half_width):
        rate += f" ±{100 * progress.half_width:.1f}%"
    return rate
