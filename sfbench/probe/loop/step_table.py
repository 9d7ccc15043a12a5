"""The step table of one rank: pending steps of a block become rows at its border."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sfbench.common.schema import STEP_COLUMNS
from sfbench.probe.clock import Clock
from sfbench.probe.loop.flow import StepEnd
from sfbench.probe.loop.own_time import HostTimes
from sfbench.probe.pace import BLOCK, Command


class DeviceSteps(Protocol):
    """Tells what a device did inside of steps."""

    def begin(self) -> None:
        """Steps begin anew."""
        ...

    def inside(self, step: int, began: Any) -> tuple[float, float, float]:
        """Seconds of forward and update, nan where not known, and of waits that it hid."""
        ...


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
        self.inside: DeviceSteps | None = None
        """On accelerators: what the device did inside of steps."""
        self.measured = 0
        """Steps of the job itself, as figures are made of."""
        self.excluded = 0
        """Steps of blocks that held a validation or a save, on an accelerator."""
        self.recompiled = 0
        """Blocks in which torch.compile compiled anew."""

    def begin(self) -> None:
        """The next step starts now: what passed since the last one belongs to no step."""
        if self.inside is not None:
            self.inside.begin()
        self._began = self._clock.mark()

    def add(self, step: StepEnd) -> None:
        """A step has ended."""
        self._pending.append(step)
        self.count += 1
        self.fetches += step.fetches

    def close(self, command: Command, *, usable: bool = True) -> tuple[list[float], float]:
        """Turn pending steps into rows. Waits for the device.

        ``usable``: nothing happened that is not the job's. Returns step_s of the block's measured
        steps (for warmup: of all) and their samples.
        """
        pending, self._pending = self._pending, []
        marks = [self._began, *(s.mark for s in pending)]
        times = self._clock.resolve(marks)
        self.recompiled += not usable
        on_device = self._clock.accelerator is not None
        first = self.count - len(pending)
        seconds, samples = [], 0.0
        for place, step in enumerate(pending):
            counts = usable and place >= command.skip
            lasted_s = times[place + 1] - times[place]
            # Host seconds cannot be taken off device seconds: a device may still be behind.
            excluded = on_device and step.other_s > 0
            measured = counts and command.kind == BLOCK and not excluded
            self.measured += measured and command.rung == 0
            self.excluded += excluded and command.kind == BLOCK
            step_s = lasted_s if on_device else lasted_s - step.other_s
            forward_s, update_s, wait_s = step.forward_s, step.update_s, step.data_wait_s
            if self.inside is not None:
                forward_s, update_s, hidden_s = self.inside.inside(first + place, marks[place])
                wait_s = max(0.0, wait_s - hidden_s)
            self._rows.append(
                (
                    self._rank, first + place, command.block, command.cycle, command.rung,
                    command.turn, measured, times[place], step_s, wait_s, step.other_s,
                    step.samples, forward_s, update_s, *_on_host(step.host), step.elements,
                )
            )  # fmt: skip
            # How fast steps are has to be known in warmup, whatever they hold.
            if counts and (not excluded or command.kind != BLOCK):
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
        *times.inside,
    )
