"""What a machine can and cannot tell: the gate run many times over measured A/A pairs. Pure.

Both sides of an A/A pair ran the same code, so each may stand for either: a simulated gate draws
whole pairs with replacement, swaps the sides of each at random, and makes one of them slower by a
known ratio. All else is the real gate: its looks, its control, its confirmation, its budget.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from sfbench.gating.fingerprint import Fingerprint
from sfbench.gating.gate_report import ArmName, GateOptions, Rate, SlotValue, Verdict
from sfbench.gating.statistics import control
from sfbench.gating.statistics.decision import CONFIRM_PAIRS, LOOKS, centre
from sfbench.gating.statistics.judge import Judge, Paired, pairs
from sfbench.gating.statistics.loop import Compared, PairLoop

CALIBRATION_SCHEMA = 1
DRAWS = 4000
"""Simulated gates behind the false-FAIL rate: without one FAIL its upper bound is 0.07 %."""
SEARCH_DRAWS = 400
"""Simulated gates at each step of a search."""
OFTEN = 0.95
"""What is caught, or passes, does so in this part of the runs."""
MOST_FALSE = 0.01
"""A suggested margin lets no more of the unchanged candidates fail."""
MARGINS = tuple(n / 100 for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 25, 30))
EFFECTS = tuple(n / 100 for n in range(2, 71))
BAND_QUANTILE = 0.995
LEAST_BAND = 0.02
MOST_BAND = 0.15
"""A control that moves by more than this says nothing: then the machine, not the band, is wrong."""
ROUND_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A/A pairs of one job on one machine, and what follows from them."""

    schema: int = CALIBRATION_SCHEMA
    fingerprint: Fingerprint
    script: str
    """Its whole path, or the name of a reference workload."""
    measured_at: str
    """ISO 8601, UTC."""
    seconds: float
    """Measuring budget of each launch."""
    margin: float
    """What the rates below hold for, as does the budget."""
    budget_s: float
    pair_s: float
    """Wall time of a pair."""
    control_band: float
    """The control differs by less than this ratio between sides that are the same."""
    false_fail: Rate
    passed: Rate
    """Unchanged candidates that pass."""
    caught: float | None
    """The smallest slow-down that fails in 95 % of the runs, as a ratio; None: none."""
    suggested_margin: float | None
    """The smallest with which 95 % of the unchanged candidates pass; None: none does."""
    suggested_budget_s: float
    """With that margin it lasts for 95 % of the unchanged candidates, a confirmation included."""
    slots: tuple[SlotValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How simulated gates ended."""

    verdicts: Counter[Verdict]
    pairs: tuple[int, ...]
    """Pairs that each took, a confirmation not counted."""

    def share(self, verdict: Verdict) -> float:
        """Of all runs."""
        return self.verdicts[verdict] / self.verdicts.total()

    def rate(self, verdict: Verdict) -> Rate:
        """With its upper bound."""
        count, draws = self.verdicts[verdict], self.verdicts.total()
        return Rate(value=count / draws, upper=upper_bound(count, draws), draws=draws)


def calibrate(
    slots: Sequence[SlotValue],
    options: GateOptions,
    *,
    fingerprint: Fingerprint,
    script: str,
    measured_at: str,
    pair_s: float,
) -> Calibration:
    """Draw conclusions from A/A pairs.

    Raises:
        ValueError: fewer than six whole pairs.
    """
    whole = pairs(slots)
    if len(whole) < LOOKS[0]:
        raise ValueError(f"{len(whole)} A/A pairs are too few to say anything")
    band = control_band(whole, options.seed)
    gates = Simulation(whole, options, band=band, pair_s=pair_s)
    unchanged = gates.run(0.0, DRAWS)
    margin = suggested_margin(whole, options, band=band, pair_s=pair_s)
    return Calibration(
        fingerprint=fingerprint,
        script=script,
        measured_at=measured_at,
        seconds=options.seconds,
        margin=options.margin,
        budget_s=options.budget_s,
        pair_s=pair_s,
        control_band=band,
        false_fail=unchanged.rate("fail"),
        passed=unchanged.rate("pass"),
        caught=gates.caught(),
        suggested_margin=margin,
        suggested_budget_s=suggested_budget_s(
            whole, replace(options, margin=margin or options.margin), band=band, pair_s=pair_s
        ),
        slots=tuple(slots),
    )


class Simulation:
    """The gate, fed with measured A/A pairs."""

    def __init__(
        self,
        whole: Sequence[tuple[SlotValue, SlotValue]],
        options: GateOptions,
        *,
        band: float,
        pair_s: float,
    ) -> None:
        self._whole = whole
        self._options = options
        self._judge = Judge(Paired(options.devices), replace(options, min_efficiency=None), band)
        self._pair_s = pair_s

    def run(self, effect: float, draws: int) -> Tally:
        """So many gates of a candidate that is slower by the ratio ``effect``; 0 = unchanged."""
        rng = np.random.default_rng(self._options.seed)
        ended = [self._one(effect, rng) for _ in range(draws)]
        return Tally(
            verdicts=Counter(compared.verdict for compared in ended),
            pairs=tuple(compared.pairs for compared in ended),
        )

    def caught(self) -> float | None:
        """The smallest slow-down that fails often enough."""
        effects = [effect for effect in EFFECTS if effect > self._options.margin]
        return _first(effects, lambda e: self.run(e, SEARCH_DRAWS).share("fail") >= OFTEN)

    def _one(self, effect: float, rng: np.random.Generator) -> Compared:
        orders: Iterator[Sequence[ArmName]] = itertools.repeat(("base", "candidate"))
        clock = _Clock()
        drawn: dict[int, tuple[SlotValue, SlotValue]] = {}

        def measure(arm: ArmName, pair: int) -> SlotValue:
            if arm == "base":
                drawn[pair] = self._draw(pair, effect, rng)
                clock.now_s += self._pair_s
            return drawn[pair][arm == "candidate"]

        return PairLoop(self._judge, orders, clock).run(
            measure, lambda: contextlib.nullcontext(measure)
        )

    def _draw(
        self, pair: int, effect: float, rng: np.random.Generator
    ) -> tuple[SlotValue, SlotValue]:
        base, candidate = self._whole[int(rng.integers(len(self._whole)))]
        if rng.random() < 0.5:
            base, candidate = candidate, base
        return _as(base, "base", pair, 0.0), _as(candidate, "candidate", pair, effect)


def _as(slot: SlotValue, arm: ArmName, pair: int, effect: float) -> SlotValue:
    """The launch as one of this arm and pair, slower by a ratio.

    Field by field, since ``replace`` takes several times as long and simulated gates make millions.
    """
    return SlotValue(
        arm=arm,
        pair=pair,
        samples_per_s=slot.samples_per_s * (1 - effect),
        cached_samples_per_s=slot.cached_samples_per_s,
        solo_samples_per_s=slot.solo_samples_per_s,
        fetch_s_per_sample=slot.fetch_s_per_sample,
    )


class _Clock:
    """Time as the simulation makes it pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def control_band(whole: Sequence[tuple[SlotValue, SlotValue]], seed: int) -> float:
    """What the control's trimmed mean over the first look's pairs rarely exceeds by itself."""
    logs = [
        math.log(c.cached_samples_per_s / b.cached_samples_per_s)
        for b, c in whole
        if b.cached_samples_per_s and c.cached_samples_per_s
    ]
    if len(logs) < LOOKS[0]:
        return control.BAND
    rng = np.random.default_rng(seed)
    means = []
    for _ in range(DRAWS):
        signs = rng.choice((-1.0, 1.0), LOOKS[0])
        means.append(abs(centre(list(signs * rng.choice(logs, LOOKS[0]))).mean))
    band = math.expm1(float(np.quantile(means, BAND_QUANTILE)))
    return min(max(LEAST_BAND, band), MOST_BAND)


def suggested_margin(
    whole: Sequence[tuple[SlotValue, SlotValue]],
    options: GateOptions,
    *,
    band: float,
    pair_s: float,
) -> float | None:
    """The smallest margin with which unchanged candidates pass and do not fail."""

    def good(margin: float) -> bool:
        gates = Simulation(whole, replace(options, margin=margin), band=band, pair_s=pair_s)
        tally = gates.run(0.0, SEARCH_DRAWS)
        return tally.share("pass") >= OFTEN and tally.rate("fail").upper <= MOST_FALSE

    return _first(MARGINS, good)


def suggested_budget_s(
    whole: Sequence[tuple[SlotValue, SlotValue]],
    options: GateOptions,
    *,
    band: float,
    pair_s: float,
) -> float:
    """Wall time, rounded up to tens of seconds. The pairs that measure all rungs take longer."""
    endless = replace(options, budget_s=math.inf)
    gates = Simulation(whole, endless, band=band, pair_s=pair_s)
    pairs_taken = gates.run(0.0, SEARCH_DRAWS).pairs
    wanted = float(np.quantile(pairs_taken, OFTEN)) + CONFIRM_PAIRS + 1
    return ROUND_S * math.ceil(wanted * pair_s / ROUND_S)


def _first(values: Sequence[float], holds: Callable[[float], bool]) -> float | None:
    """The first of ascending values for which ``holds``, which once it does goes on to do."""
    place = bisect.bisect_left(values, True, key=holds)
    return values[place] if place < len(values) else None


def upper_bound(count: int, draws: int) -> float:
    """One-sided 95 % bound of a rate (Clopper and Pearson, Biometrika 1934)."""
    if count >= draws:
        return 1.0
    return float(special.betaincinv(count + 1, draws - count, 0.95))
