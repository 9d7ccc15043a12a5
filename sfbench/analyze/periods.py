"""How often something comes: every so many steps, or by no rule. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from sfbench.common.schema import Interval

MIN_TIMES = 3
"""Twice is no rule."""
REACHED = 0.8
"""Part of the steps at which one is due that must have one."""
EXPLAINED = 0.75
"""Part of all that were seen that a rule must explain."""
CONFIDENCE = 0.95
MANY_GAPS = 8
"""So many tell whether what comes by no rule comes about every so many steps ..."""
ALIKE = 0.5
"""... by this part of the deviation that they have by chance."""
FAR = 20_000
"""Steps over which rules of several ranks are laid side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Comes at steps that leave ``place`` when divided by ``period``."""

    period: int
    place: int
    times: int
    due: int
    """Steps at which one was due, over all launches: ``times`` of them had one, or all."""
    sure: bool = True
    """False: each launch has one, at the same step. That may as well be once per start."""


def find_rule(at: Sequence[tuple[int, int]], lengths: Mapping[int, int]) -> Rule | None:
    """The rule behind what was seen at (launch, step); ``lengths``: steps that a launch made.

    A script counts its own steps, so that all its launches have the same rule. None if none
    explains what was seen. One event in each launch, always at the same step, is read as a period
    of so many steps as long as no launch was long enough for a second one; a launch that was, and
    had none, disproves it.
    """
    if len(at) < MIN_TIMES:
        return None
    step = np.array([place for _, place in at], dtype=np.int64)
    best: tuple[int, Rule] | None = None
    for period in _candidates(step, max(lengths.values())):
        places = np.bincount(step % period)
        place = int(places.argmax())
        times = int(places[place])
        if times < max(MIN_TIMES, EXPLAINED * len(at)):
            continue
        due = sum(len(range(place or period, length, period)) for length in lengths.values())
        score = times - 2 * max(0, due - times)
        if times >= REACHED * due and (best is None or score > best[0]):
            sure = _repeats(at, period, place)
            if not sure and place not in (0, 1, period - 1):
                continue
            best = (score, Rule(period=period, place=place, times=times, due=due, sure=sure))
    return None if best is None else best[1]


def _candidates(step: npt.NDArray[np.int64], longest: int) -> list[int]:
    """Periods by which enough of the steps leave one remainder: all are tried at once."""
    periods = np.arange(2, longest + 1, dtype=np.int64)
    enough = max(MIN_TIMES, math.ceil(EXPLAINED * len(step)))
    left = np.sort(step[None, :] % periods[:, None], axis=1)
    alike = left[:, enough - 1 :] == left[:, : len(step) - enough + 1]
    found: list[int] = periods[alike.any(axis=1)].tolist()
    return found


def _repeats(at: Sequence[tuple[int, int]], period: int, place: int) -> bool:
    """Whether what was seen tells a period from what comes once per start.

    Three different steps on the rule do, since two distances agree; two in one launch do if the
    first is as far from the start as they are from each other.
    """
    on_rule = [(launch, step) for launch, step in at if step % period == place]
    different = len({step for _, step in on_rule})
    twice = max(Counter(launch for launch, _ in on_rule).values()) > 1
    return different >= MIN_TIMES or (twice and place in (0, 1, period - 1))


def times_interval(times: int) -> tuple[float, float]:
    """How many would be expected if so many came by chance (Garwood 1936)."""
    alpha = 1 - CONFIDENCE
    low = 0.0 if times == 0 else float(special.chdtri(2 * times, 1 - alpha / 2)) / 2
    return low, float(special.chdtri(2 * times + 2, alpha / 2)) / 2


def size_interval(sizes_s: Sequence[float]) -> Interval:
    """Mean size; the interval is Student's t, and of one alone it goes from 0 to twice its size."""
    values = np.array(sizes_s, dtype=np.float64)
    mean = float(values.mean())
    if len(values) == 1:
        return Interval(value=mean, low=0.0, high=2 * mean)
    error = float(values.std(ddof=1)) / np.sqrt(len(values))
    half = float(special.stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * error
    return Interval(value=mean, low=max(0.0, mean - half), high=mean + half)


def part_interval(times: int, due: int) -> Interval:
    """Part of the due steps that have one (Clopper and Pearson 1934); just 1 where all had one.

    A script that did what it does at every step where it was due does it by a rule.
    """
    if times >= due:
        return Interval(value=1.0, low=1.0, high=1.0)
    alpha = 1 - CONFIDENCE
    low = float(special.betaincinv(times, due - times + 1, alpha / 2))
    high = float(special.betaincinv(times + 1, due - times, 1 - alpha / 2))
    return Interval(value=times / due, low=low, high=high)


def per_step(
    sizes_s: Sequence[float], seen: int, rule: Rule | None, gaps: Sequence[int] = ()
) -> Interval:
    """Seconds per step: mean size over the period, or all sizes over the steps that were ``seen``.

    With a rule the interval is that of the mean size and that of the part of the due steps that
    had one, as independent errors; if the rule is not sure it begins at 0: once per start costs
    nothing in the long run. Without a rule it is that of a Poisson count, unless the steps from one
    to the next (``gaps``) are far more alike than they would be by chance: their mean tells then.
    """
    if rule is not None:
        return _by_rule(size_interval(sizes_s), part_interval(rule.times, rule.due), rule)
    if len(gaps) >= MANY_GAPS and np.std(gaps, ddof=1) <= ALIKE * np.mean(gaps):
        gap, size = size_interval(gaps), size_interval(sizes_s)
        return _ratio(size, gap)
    value = float(sum(sizes_s)) / seen
    fewest, most = times_interval(len(sizes_s))
    low, high = fewest / len(sizes_s), most / len(sizes_s)
    return Interval(value=value, low=value * low, high=value * high)


def met_part(stalls: Sequence[tuple[int | None, float, Rule | None]]) -> float:
    """What stalls of (rank, size, rule) cost a job, over the sum of what each costs by itself.

    Ranks that stop at one step wait once: the longest counts. What comes by no rule meets nothing.
    """
    ruled = [(rank, size, rule) for rank, size, rule in stalls if rule is not None]
    ranks = {rank for rank, _, _ in ruled}
    if len(ranks - {None}) < 2:
        return 1.0
    own = {rank: np.zeros(FAR) for rank in ranks}
    for rank, size, rule in ruled:
        own[rank][rule.place % rule.period :: rule.period] += size
    everybody = own.pop(None, np.zeros(FAR))
    alone = sum(float(times.sum()) for times in (everybody, *own.values()))
    return float((everybody + np.max(list(own.values()), axis=0)).sum()) / alone


def _ratio(size: Interval, gap: Interval) -> Interval:
    value = size.value / gap.value
    ends = ((size.low, gap.high), (size.high, gap.low))
    below, above = (
        math.hypot((at or 0.0) / size.value - 1, gap.value / (over or gap.value) - 1)
        for at, over in ends
    )
    return Interval(value=value, low=value * max(0.0, 1 - below), high=value * (1 + above))


def _by_rule(size: Interval, part: Interval, rule: Rule) -> Interval:
    value = size.value * part.value / rule.period
    below = math.hypot(*(1 - (one.low or 0.0) / one.value for one in (size, part)))
    above = math.hypot(*((one.high or one.value) / one.value - 1 for one in (size, part)))
    low = value * max(0.0, 1 - below) if rule.sure else 0.0
    return Interval(value=value, low=low, high=value * (1 + above))
