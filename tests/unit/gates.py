"""Slots made up for tests of the gate: every figure is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from sfbench.gating.conclusion import SidesParts, Subject
from sfbench.gating.gate_report import ArmName, GateOptions, SlotValue
from sfbench.gating.statistics.control import BAND
from sfbench.gating.statistics.judge import Judge, Paired
from sfbench.gating.statistics.loop import Compared, Measure, PairLoop

OPTIONS = GateOptions(devices=8, budget_s=1000.0)
SUBJECT = Subject(target="train", against="main", base_commit="b" * 40, candidate_commit="c" * 40)
NONE: dict[str, float | None] = {"straggler": 0.0, "jitter": 0.0}
LIGHT = NONE | {"compute": 0.80, "host": 0.05, "communication": 0.13, "data": 0.02}
HEAVY = NONE | {"compute": 0.616, "host": 0.0385, "communication": 0.1, "data": 0.2455}
WIDE: dict[str, float | None] = dict.fromkeys(LIGHT, 0.01)
SEEN = SidesParts(base=LIGHT, candidate=HEAVY, base_half_width=WIDE, candidate_half_width=WIDE)
JITTER = (1.0, 1.01, 0.99, 1.005, 0.995, 1.002)
"""What repeats of one launch differ by."""


def slot(arm: ArmName, pair: int, rate: float, *, cached: float | None = 3000.0) -> SlotValue:
    """A launch: samples/s, and those of the control; one device by itself does 400."""
    return SlotValue(
        arm=arm,
        pair=pair,
        samples_per_s=rate,
        cached_samples_per_s=cached,
        solo_samples_per_s=400.0,
        fetch_s_per_sample=0.0041 if arm == "base" else 0.0098,
    )


def slots(ratio: float, count: int = 6, *, control: float = 1.0) -> list[SlotValue]:
    """Pairs in which the candidate does ``ratio`` of 2560 samples/s, give or take a little."""
    pairs: list[SlotValue] = []
    for pair in range(count):
        jitter = JITTER[pair % len(JITTER)]
        pairs.append(slot("base", pair, 2560.0))
        pairs.append(slot("candidate", pair, 2560.0 * ratio * jitter, cached=3000.0 * control))
    return pairs


class Machine:
    """Launches that take 5 s each and give what was planned, pair by pair."""

    def __init__(self, base: Sequence[float], candidate: Sequence[float]) -> None:
        """Rates by pair; the last one goes on for ever."""
        self.rates: dict[ArmName, Sequence[float]] = {"base": base, "candidate": candidate}
        self.cached: Callable[[ArmName, int], float | None] = lambda arm, pair: 3000.0
        self.now_s = 0.0
        self.launched: list[tuple[ArmName, int]] = []
        self.fresh = 0
        """How often the sides were checked out again."""

    def clock(self) -> float:
        return self.now_s

    def measure(self, arm: ArmName, pair: int) -> SlotValue:
        self.now_s += 5.0
        self.launched.append((arm, pair))
        rates = self.rates[arm]
        return slot(arm, pair, rates[min(pair, len(rates) - 1)], cached=self.cached(arm, pair))

    def again(self) -> AbstractContextManager[Measure]:
        self.fresh += 1
        return nullcontext(self.measure)


def judge(options: GateOptions = OPTIONS) -> Judge:
    """Of pairs, with the usual control band."""
    return Judge(Paired(options.devices), options, BAND)


def compare(machine: Machine, options: GateOptions = OPTIONS) -> Compared:
    """Run the loop on a made-up machine."""
    return PairLoop(judge(options), _orders(), machine.clock).run(machine.measure, machine.again)


def _orders() -> Iterator[Sequence[ArmName]]:
    while True:
        yield "base", "candidate"


def with_options(**changes: object) -> GateOptions:
    """The usual options, some changed."""
    return replace(OPTIONS, **changes)  # type: ignore[arg-type]
