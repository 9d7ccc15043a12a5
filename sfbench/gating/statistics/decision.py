"""Decides from pairs of measurements: pass, fail, or go on. Pure.

The pair is the unit: base and candidate launched close in time, one value each, one log ratio. Of
n ratios the 20 % trimmed mean is judged with Yuen's t interval, which a burst on the machine hardly
moves. Looks are fixed beforehand and share an error of 5 % for each side, at a candidate that is
slower by just the margin; an unchanged one is far from it, and a FAIL has to be seen again.

Sources: Yuen (1974), "The two-sample trimmed t for unequal population variances", Biometrika 61;
Wilcox, "Introduction to Robust Estimation and Hypothesis Testing", 4.3 (one sample); Pocock (1977),
"Group sequential methods in the design and analysis of clinical trials", Biometrika 64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import special

from sfbench.gating.gate_report import Estimate

TRIM = 0.2
"""Part of the ratios left out at each end."""
LOOKS = (6, 8, 10, 12, 14, 16)
"""Pairs after which a decision may fall. Fewer than six cannot support an error of 1 %."""
ALPHAS = (0.008, 0.008, 0.008, 0.008, 0.009, 0.009)
"""One-sided error spent at each look."""
CONFIRM_PAIRS = 4
"""A FAIL has to show again in so many fresh pairs."""
MIN_VALUES = 3
"""Fewer have no trimmed mean."""
MOST_PAIRS = 200
"""More are never practical."""

Decision = Literal["pass", "fail", "continue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Centre:
    """Trimmed mean of log ratios, or the difference of two such means."""

    mean: float
    error: float
    """Standard error by Yuen."""
    degrees: float
    count: int
    """Pairs behind it."""


def centre(logs: Sequence[float]) -> Centre:
    """20 % trimmed mean of n values, its standard error and degrees of freedom.

    With g = floor(0.2 n), but 1 of 4 values, the error is s_w / (0.6 sqrt(n)), where s_w is the
    standard deviation of the winsorised values, with n - 2 g - 1 degrees of freedom.

    Raises:
        ValueError: fewer than three values, or one that is not finite.
    """
    if len(logs) < MIN_VALUES or not all(map(math.isfinite, logs)):
        raise ValueError("at least three finite log ratios are needed")
    n, cut = len(logs), _cut(len(logs))
    ordered = sorted(logs)
    kept = ordered[cut : n - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    middle = math.fsum(winsorised) / n
    variance = math.fsum((value - middle) ** 2 for value in winsorised) / (n - 1)
    return Centre(
        mean=math.fsum(kept) / len(kept),
        error=math.sqrt(variance) / ((1 - 2 * TRIM) * math.sqrt(n)),
        degrees=n - 2 * cut - 1,
        count=n,
    )


def difference(one: Centre, other: Centre) -> Centre:
    """``one`` minus ``other``, of independent values; degrees of freedom by Welch."""
    a, b = one.error**2, other.error**2
    degrees = min(one.degrees, other.degrees)
    if a + b > 0:
        degrees = (a + b) ** 2 / (a**2 / one.degrees + b**2 / other.degrees)
    return Centre(
        mean=one.mean - other.mean, error=math.sqrt(a + b), degrees=degrees, count=one.count
    )


def estimate(at: Centre, confidence: float = 0.95) -> Estimate:
    """The change (ratio minus one) that a centre shows, with its two-sided interval."""
    half = _quantile(0.5 + confidence / 2, at.degrees) * at.error
    return Estimate(
        value=math.expm1(at.mean), low=math.expm1(at.mean - half), high=math.expm1(at.mean + half)
    )


def level(at: Centre) -> Estimate:
    """The level itself that a centre of logarithms shows, with its interval."""
    change = estimate(at)
    return Estimate(value=1 + change.value, low=1 + change.low, high=1 + change.high)


def decide(at: Centre, limit: float) -> Decision:
    """Judge after a look's number of pairs; in between it is always ``continue``.

    ``limit`` is a log ratio. fail: the interval lies wholly below it; pass: wholly above.
    """
    if at.count not in LOOKS:
        return "continue"
    half = _half(at, ALPHAS[LOOKS.index(at.count)])
    if at.mean + half < limit:
        return "fail"
    if at.mean - half > limit:
        return "pass"
    return "continue"


def confirms(at: Centre, limit: float) -> bool:
    """Whether fresh pairs show a FAIL again: their mean lies below the limit as well."""
    return at.mean < limit


def settled(at: Centre, limit: float) -> bool:
    """Whether the limit lies outside the interval of the last look."""
    return abs(at.mean - limit) > _half(at, ALPHAS[-1])


def pairs_needed(at: Centre, limit: float) -> int | None:
    """Pairs after which an interval as noisy as this one would leave the limit to one side.

    None if the change lies so near to the limit that no practical number would do.
    """
    distance = abs(at.mean - limit)
    deviation = at.error * math.sqrt(at.count)
    for pairs in range(at.count + 1, MOST_PAIRS + 1):
        degrees = pairs - 2 * _cut(pairs) - 1
        half = _quantile(1 - ALPHAS[-1], degrees) * deviation / math.sqrt(pairs)
        if half < distance:
            return pairs
    return None


def _cut(count: int) -> int:
    """Values left out at each end: one burst among those of a confirmation shall not decide."""
    return 1 if count == CONFIRM_PAIRS else math.floor(TRIM * count)


def _half(at: Centre, alpha: float) -> float:
    return _quantile(1 - alpha, at.degrees) * at.error


@functools.cache
def _quantile(p: float, degrees: float) -> float:
    """Of Student's t: slow to compute, and asked for again and again by a simulation."""
    return float(special.stdtrit(degrees, p))
