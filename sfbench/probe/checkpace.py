"""Decides on rank 0 what runs next in a check: nothing is measured, much is visited.

Pure: time is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import numpy as np

from sfbench.common.schema import RUNGS, ProbeOptions
from sfbench.probe.pace import BLOCK, DONE, WARMUP, BlockFacts, Command, Figures

CHUNK_S = 0.2
MOST_STEPS = 50
AS_IT_IS = 0.4
"""Part of the time that is given to the loop as it is, so that short epochs end by themselves."""
SHORTENED = 0.6
"""Part of it after which epochs are no longer waited for."""
PASSES = 3
"""Epochs to see: two of the same order may be chance if they are short."""
ENDS = 2
"""Epochs that ended by themselves, after which the loop has shown what it does."""
STEPS_PER_PASS = 4
TRIAL_PAIRS = 4
TRIAL_STEPS = 3


class Seen(NamedTuple):
    """What rank 0 has seen so far."""

    passes: int
    """Epochs begun."""
    ended: int
    """Epochs that ended by themselves."""
    superfluous: int
    """Gradient syncs per update if all but one could be left out; else 0."""


class CheckPace:
    """A schedule that unfolds as facts come in: ``send(facts)`` at each border.

    ``options.seconds`` is the time after the loop has been found.
    """

    def __init__(self, options: ProbeOptions, seen: Callable[[], Seen]) -> None:
        self._options = options
        self._seen = seen
        self._step_s = 0.01
        self._block = -1
        self.figures = Figures()
        self.sync_cost_s: float | None = None
        """Per update, what superfluous gradient syncs cost; None: not tried."""
        self._run = self._schedule()
        next(self._run)

    def send(self, facts: BlockFacts) -> Command:
        """The next command, given what the last one brought (first: what discovery saw)."""
        self._step_s = _mean(facts.step_s) or self._step_s
        return self._run.send(facts)

    def _schedule(self) -> Generator[Command, BlockFacts, None]:
        facts = yield Command(WARMUP)
        self._step_s = _mean(facts.step_s) or self._step_s
        began = facts.now_s
        if self._seen().superfluous:
            facts = yield from self._trial(facts)
        while facts.now_s - began < self._until(AS_IT_IS) and self._seen().ended < ENDS:
            facts = yield self._steps()
        while facts.now_s - began < self._until(SHORTENED) and self._seen().passes < PASSES:
            facts = yield self._steps(end_pass=True)
        # What stands behind the loop (a last evaluation, a last checkpoint) is come to by epochs
        # that hardly begin.
        passes = self._seen().passes
        while self._options.may_shorten and facts.now_s - began < self._options.seconds:
            facts = yield self._steps(end_pass=True)
            if self._seen().passes == passes:
                break
            passes = self._seen().passes
        self.figures.stop_reason = "seconds"
        while True:
            yield Command(DONE)

    def _until(self, part: float) -> float:
        return part * self._options.seconds

    def _steps(self, *, end_pass: bool = False) -> Command:
        if end_pass and self._options.may_shorten:
            return self._command(STEPS_PER_PASS, end_pass=1)
        return self._command(max(1, min(MOST_STEPS, round(CHUNK_S / self._step_s))))

    def _trial(self, facts: BlockFacts) -> Generator[Command, BlockFacts, BlockFacts]:
        """Steps as they are and with one sync per update in turn: the difference is the cost."""
        differences = []
        for _ in range(TRIAL_PAIRS):
            facts = yield self._command(TRIAL_STEPS)
            as_it_is = _mean(facts.step_s)
            facts = yield self._command(TRIAL_STEPS, trial=1)
            differences.append(as_it_is - _mean(facts.step_s))
        self.sync_cost_s = max(0.0, float(np.median(differences)))
        return facts

    def _command(self, steps: int, *, end_pass: int = 0, trial: int = 0) -> Command:
        self._block += 1
        return Command(
            BLOCK,
            RUNGS.index("train"),
            steps,
            cycle=self._block,
            block=self._block,
            end_pass=end_pass,
            trial=trial,
        )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
