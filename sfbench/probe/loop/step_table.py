"""The step table of one rank: pending steps of a block become rows at its border."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sfbench.common.schema import STEP_COLUMNS
from sfbench.probe.clock import Clock
from sfbench.probe.loop.flow import HostTimes, StepEnd
from sfbench.probe.pace import BLOCK, Command


class StepTable:
    """Collects steps; costs one append per step."""

    def __init__(self, clock: Clock, rank: int) -> None:
        self._clock = clock
        self._rank = rank
        self._began: Any = None
        self._pending: list[StepEnd] = []
        self._rows: list[tuple[float, ...]] = []
        self.count = 0
        self.fetches = 0

    def begin(self) -> None:
        """The next step starts now: what passed since the last one belongs to no step."""
        self._began = self._clock.mark()

    def add(self, step: StepEnd) -> None:
        """A step has ended."""
        self._pending.append(step)
        self.count += 1
        self.fetches += step.fetches

    def close(self, command: Command) -> tuple[list[float], float]:
        """Turn pending steps into rows. Waits for the device.

        Returns step_s of the block's measured steps (for warmup: of all) and their samples.
        """
        pending, self._pending = self._pending, []
        times = self._clock.resolve([self._began, *(s.mark for s in pending)])
        on_device = self._clock.accelerator is not None
        first = self.count - len(pending)
        seconds, samples = [], 0.0
        for place, step in enumerate(pending):
            measured = command.kind == BLOCK and place >= command.skip
            lasted_s = times[place + 1] - times[place]
            # Host seconds cannot be taken off device seconds: a device may still be behind.
            excluded = on_device and step.other_s > 0
            measured = measured and not excluded
            step_s = lasted_s if on_device else lasted_s - step.other_s
            forward_s, update_s = (np.nan, np.nan) if on_device else (step.forward_s, step.update_s)
            self._rows.append(
                (
                    self._rank, first + place, command.block, command.cycle, command.rung,
                    command.turn, measured, times[place], step_s, step.data_wait_s, step.other_s,
                    step.samples, forward_s, update_s, *_on_host(step.host), step.elements,
                )
            )  # fmt: skip
            if place >= command.skip and not excluded:
                seconds.append(step_s)
                samples += step.samples
        return seconds, samples

    def array(self) -> npt.NDArray[np.float64]:
        """All rows so far, columns ``STEP_COLUMNS``."""
        return np.array(self._rows, dtype=np.float64).reshape(-1, len(STEP_COLUMNS))


def _on_host(times: HostTimes) -> tuple[float, ...]:
    """When the step began, and the others in seconds after that."""
    forward = times.forward_began > 0.0
    return (
        times.began,
        times.between_s,
        times.forward_began - times.began if forward else np.nan,
        times.forward_ended - times.began if forward else np.nan,
        times.update_ended - times.began,
        times.saved_s,
        times.passes,
    )
