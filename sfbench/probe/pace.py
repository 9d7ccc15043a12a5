"""Decides on rank 0 what runs next: warmup, blocks on the rungs, the end.

Pure: time is passed in.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

import numpy as np

from sfbench.common.schema import RUNGS, ProbeOptions, Rung
from sfbench.common.steady import settled

WARMUP, BLOCK, DONE = range(3)

MIN_WARMUP_STEPS = 10
"""DDP rebuilds its buckets and samples its timers in the first ten synced steps."""
STEADY_MIN_STEPS = 25
"""MSER-5 needs five batches of five."""
WARMUP_CAP = 0.3
"""Part of the budget after which warmup is not waited for any longer; at least WARMUP_CAP_S,"""
WARMUP_CAP_S = 2.0
WARMUP_CAP_SHORT = 0.6
"""but not more than this part of a short one."""
SKIP_TRAIN = 10
"""Steps that pass unmeasured when the real loader takes over again (or as many as were drained)."""
SKIP_TRAIN_S = 1.0
"""Of slow steps fewer pass: as many as fill this time, but never fewer than were drained."""
SPREAD_TRAIN_S = 0.2
"""A random number of steps up to this long pass as well."""
SKIP_OTHER = 1
FILL_STEPS = 3
"""On an accelerator every block begins right after a wait for the device: so many steps pass until
the host is ahead of it again."""
FILL_S = 0.2
"""And after another rung, or parked, its clock has to come back first: so long at least."""
MIN_STEPS, MIN_STEPS_SLOW = 4, 2
"""Measured steps of a block; fewer where two cycles would take longer than the budget."""
MIN_BLOCKS = 3
PATIENCE = 3.0
"""After so many budgets without enough of what counts it is over: nothing will come any more."""
PASS_TRAIN_BLOCKS, PASS_BLOCKS = 8, 4
"""Blocks of ``train``, and of every other rung, where each is visited once."""
MIN_CYCLES = 2
CURVE_CYCLES = 3
"""Repeats of the batch curve in a launch by itself; in one of many, one for every two cycles."""
WHOLE_TURNS = 2
"""Up to so many ranks all have their solo turn in every cycle; of more, half in each."""
_APART = ("unsynced", "solo")
_CURVE: tuple[Rung, ...] = ("half", "solo", "double")
LOOKS = (6, 12, 24, 48, 96, 192)
"""Blocks or cycles after which the precision is looked at: fixed beforehand, since looking after
every block would stop too early."""

# Two-sided 95 % quantiles of Student's t for 1..30 degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


class Command(NamedTuple):
    """What all ranks do until the next border."""

    kind: int
    rung: int = 0
    steps: int = 0
    """Measured steps (for warmup: steps)."""
    skip: int = 0
    """Steps before them that pass unmeasured."""
    turn: int = -1
    """The rank that runs; -1 = all."""
    cycle: int = -1
    block: int = -1
    end_pass: int = 0
    """Only in a check: the training loader's pass ends before its next batch."""
    trial: int = 0
    """Only in a check: superfluous gradient syncs are left out."""
    save: int = 0
    """What was measured is brought in first: this may take more memory than there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFacts:
    """What rank 0 saw of the last command."""

    now_s: float
    """Any clock, the same in every call."""
    step_s: Sequence[float]
    samples: float


@dataclass(slots=True)
class Figures:
    """For the live display."""

    samples_per_s: float = math.nan
    half_width: float = math.nan
    measured_s: float = 0.0
    stop_reason: str = ""
    rates: list[float] = field(default_factory=list)


class Pace:
    """A schedule that unfolds as facts come in: ``send(facts)`` at each border."""

    def __init__(
        self,
        options: ProbeOptions,
        rungs: Sequence[Rung],
        world_size: int,
        queued: int = 0,
        can_curve: Callable[[], bool] = lambda: False,
        *,
        on_device: bool = False,
    ) -> None:
        self._options = options
        self._rungs = tuple(rungs)
        self._world_size = world_size
        self._queued = queued
        self._can_curve = can_curve
        self._on_device = on_device
        self._rung: Rung | None = None
        self._left_out: set[Rung] = set()
        self._random = random.Random(options.seed)
        self._block = -1
        self._step_s = 0.01
        self._began = 0.0
        self._warmed = 0
        self._order: list[int] = []
        self.figures = Figures()
        self._run = self._schedule()
        next(self._run)

    def leave_out(self, rungs: Sequence[Rung]) -> None:
        """There turned out to be no room for these; their commands that come are not obeyed."""
        self._left_out |= set(rungs)
        self._rungs = tuple(rung for rung in self._rungs if rung not in rungs)

    def send(self, facts: BlockFacts) -> Command:
        """The next command, given what the last one brought (first: what discovery saw)."""
        return self._run.send(facts)

    def _schedule(self) -> Generator[Command, BlockFacts, None]:
        facts = yield Command(WARMUP)
        facts = yield from self._warmup(facts)
        self._began = facts.now_s
        if self._options.one_pass:
            yield from self._one_pass()
        elif self._rungs == ("train",):
            yield from self._train_only(facts)
        else:
            yield from self._ladder(facts)
        while True:
            yield Command(DONE)

    def _warmup(self, facts: BlockFacts) -> Generator[Command, BlockFacts, BlockFacts]:
        began, times = facts.now_s, list(facts.step_s)
        while not self._warm(times, facts.now_s - began):
            facts = yield Command(WARMUP, steps=self._warmup_chunk(times))
            times.extend(facts.step_s)
        self._warmed = len(times)
        # The mean: a stall at each epoch's start is part of what blocks will take.
        self._step_s = fmean(times[-10:])
        return facts

    def _warm(self, times: Sequence[float], elapsed_s: float) -> bool:
        if self._options.warmup_steps is not None:
            return len(times) >= self._options.warmup_steps
        if len(times) < MIN_WARMUP_STEPS:
            return False
        seconds = self._options.seconds
        if elapsed_s > max(min(WARMUP_CAP_S, WARMUP_CAP_SHORT * seconds), WARMUP_CAP * seconds):
            return True
        return len(times) >= STEADY_MIN_STEPS and settled(np.asarray(times))

    def _warmup_chunk(self, times: Sequence[float]) -> int:
        if self._options.warmup_steps is not None:
            return self._options.warmup_steps - len(times)
        if len(times) < MIN_WARMUP_STEPS:
            return MIN_WARMUP_STEPS - len(times)
        # Borders of very short steps would cost more than the steps.
        return max(5, 5 * round(0.1 / (5 * float(np.median(times)) + 1e-6)))

    def _train_only(self, facts: BlockFacts) -> Generator[Command, BlockFacts, None]:
        block_s = min(self._options.block_s, self._options.seconds / 8)
        steps = max(2, round(block_s / self._step_s))
        while not self._enough(facts.now_s, len(self.figures.rates), MIN_BLOCKS):
            facts = yield self._command("train", steps, cycle=self._block + 1)
            self._note(facts)

    def _one_pass(self) -> Generator[Command, BlockFacts, None]:
        """The job first, for as long as it has run anyway: no queue has to come back to life."""
        block_s = self._options.seconds / (PASS_TRAIN_BLOCKS + PASS_BLOCKS)
        steps = max(2, round(block_s / self._step_s))
        skip = max(0, self._queued - self._warmed)
        for cycle in range(PASS_TRAIN_BLOCKS):
            facts = yield self._command("train", steps, skip=0 if cycle else skip, cycle=cycle)
            self._note(facts)
        for rung in self._rungs[1:]:
            for turn in self._turns(rung):
                for cycle in range(0 if rung in self._left_out else PASS_BLOCKS):
                    skip = 0 if cycle else SKIP_OTHER
                    yield self._command(rung, steps, skip=skip, turn=turn, cycle=cycle)
        self.figures.stop_reason = "seconds"

    def _ladder(self, facts: BlockFacts) -> Generator[Command, BlockFacts, None]:
        previous: Rung = "train"
        cycle, longest = 0, 0.0
        halves = self._in_halves()
        steps = self._ladder_steps(halves)
        # One cycle longer than the whole budget has to do.
        while not self._enough(
            facts.now_s + 0.6 * longest,
            cycle,
            MIN_CYCLES if halves or longest < self._options.seconds else 1,
        ):
            began = facts.now_s
            for rung in self._order_of_rungs(cycle):
                for turn in self._turns(rung, cycle, halves):
                    if rung in self._left_out:
                        break
                    facts = yield self._ladder_command(rung, previous, steps, turn, cycle)
                    previous = rung
                    if rung == "train":
                        self._note(facts)
            longest = max(longest, facts.now_s - began)
            cycle += 1
        if "solo" in self._rungs and self._can_curve():
            yield from self._curve(steps, cycle)

    def _order_of_rungs(self, cycle: int) -> Sequence[Rung]:
        """Drawn anew in each cycle. On an accelerator the first one begins with what the job does
        anyway: something is measured before the tool takes memory of its own. And a rank runs alone
        only after all have shown that they do not meet where they should not."""
        order = self._random.sample(self._rungs, len(self._rungs))
        if cycle > 0:
            return order
        if self._on_device:
            return sorted(order, key=RUNGS.index)
        apart = iter(sorted((r for r in order if r in _APART), key=RUNGS.index))
        return [next(apart) if rung in _APART else rung for rung in order]

    def _curve(self, steps: int, cycle: int) -> Generator[Command, BlockFacts, None]:
        """Half, single and double batches close together, at the end: see docs/statistics.md."""
        for repeat in range(min(CURVE_CYCLES, max(1, self._options.cycles // 2))):
            for rung in self._random.sample(_CURVE, len(_CURVE)):
                if rung in self._left_out:
                    continue
                yield self._command(rung, steps, skip=SKIP_OTHER, turn=0, cycle=cycle + repeat)

    def _in_halves(self) -> bool:
        """Whether two cycles at least will be made, so that half of the ranks run alone in each."""
        if self._world_size <= WHOLE_TURNS:
            return False
        shortest = (MIN_STEPS + SKIP_OTHER) * (len(self._rungs) + 1 + self._world_size)
        return shortest * self._step_s < self._options.seconds

    def _ladder_steps(self, halves: bool) -> int:
        """Measured steps of a block, so that ``options.cycles`` cycles fill the budget."""
        turns = -(-self._world_size // 2) if halves else self._world_size
        more_turns = ("solo" in self._rungs) * (turns - 1)
        parts = len(self._rungs) + 1 + more_turns
        before_train = self._queued + self._skip_train("cached")
        unmeasured = before_train + self._fill() * (len(self._rungs) - 1 + more_turns)
        budget = self._options.seconds / (self._options.cycles * self._step_s)
        # Half a part more for the steps that pass at random.
        steps = min((budget - unmeasured) / (parts + 0.5), self._options.block_s / self._step_s)
        # Where even short blocks take more than the budget, shorter ones have to do.
        shortest = MIN_STEPS * (parts + 0.5) + unmeasured
        slow = 2 * shortest * self._step_s > self._options.seconds
        return min(64, max(MIN_STEPS_SLOW if slow else MIN_STEPS, round(steps)))

    def _turns(self, rung: Rung, cycle: int = 0, halves: bool = False) -> list[int]:
        """Who runs: all at once, or in the solo rung one after the other.

        In halves each two cycles have a turn of every rank; who comes first is drawn anew.
        """
        if rung != "solo":
            return [-1]
        if cycle % 2 == 0 or not halves:
            self._order = self._random.sample(range(self._world_size), self._world_size)
        if not halves:
            return self._order
        middle = -(-self._world_size // 2)
        return self._order[:middle] if cycle % 2 == 0 else self._order[middle:]

    def _ladder_command(
        self, rung: Rung, previous: Rung, steps: int, turn: int, cycle: int
    ) -> Command:
        skip = SKIP_OTHER
        if rung == "train":
            # What train costs comes with queues as full as in real life, not as after a rest; and
            # what comes each so many steps (an epoch's start) must not keep step with the cycles.
            spread = max(1, min(steps, round(SPREAD_TRAIN_S / self._step_s)))
            skip = self._skip_train(previous) + self._random.randrange(spread)
            steps = 2 * steps
        return self._command(rung, steps, skip=skip, turn=turn, cycle=cycle)

    def _skip_train(self, previous: Rung) -> int:
        if previous == "train" or self._queued == 0:
            return SKIP_OTHER
        return max(self._queued, min(SKIP_TRAIN, max(2, round(SKIP_TRAIN_S / self._step_s))))

    def _command(
        self, rung: Rung, steps: int, *, skip: int = 0, turn: int = -1, cycle: int = -1
    ) -> Command:
        self._block += 1
        goes_on, self._rung = rung == self._rung and turn < 0, rung
        if self._on_device:
            skip = max(skip, FILL_STEPS if goes_on else self._fill())
        return Command(BLOCK, RUNGS.index(rung), steps, skip, turn, cycle, self._block)

    def _fill(self) -> int:
        """Steps that pass before a block on another rung than the one before."""
        if not self._on_device:
            return SKIP_OTHER
        return max(FILL_STEPS, math.ceil(FILL_S / self._step_s))

    def _note(self, facts: BlockFacts) -> None:
        figures = self.figures
        total = sum(facts.step_s)
        if total > 0:
            figures.rates.append(self._world_size * facts.samples / total)
        figures.measured_s = facts.now_s - self._began
        logs = np.log(np.maximum(figures.rates, 1e-12))
        figures.samples_per_s = float(np.exp(logs.mean())) if len(logs) else math.nan
        if len(logs) > 1:
            figures.half_width = float(t95(len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)))

    def _enough(self, now_s: float, count: int, least: int) -> bool:
        if count < least and now_s - self._began < PATIENCE * self._options.seconds:
            return False
        if count in LOOKS and self.figures.half_width <= self._options.precision:
            self.figures.stop_reason = "precision"
            return True
        if now_s - self._began >= self._options.seconds:
            self.figures.stop_reason = "seconds"
            return True
        return False


def no_steps(now_s: float) -> BlockFacts:
    """Of a rank that was parked, or a rung that was left out."""
    return BlockFacts(now_s=now_s, step_s=(), samples=0.0)


def t95(degrees: int) -> float:
    """Two-sided 95 % quantile of Student's t; beyond 30 degrees of freedom to within 0.1 %."""
    return _T95[degrees - 1] if degrees <= len(_T95) else 1.96 + 2.4 / degrees
