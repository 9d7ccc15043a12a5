"""Decides from pairs of measurements: pass, fail, or go on. Pure.

The pair is the unit: base and candidate launched close in time, one value each, one log ratio. Of
n ratios the 20 % trimmed mean is judged with Yuen's t interval, which a burst on the machine hardly
moves. Looks are fixed beforehand and share an error of 1 % for a false FAIL, 2.5 % for both sides.

Sources: Yuen (1974), "The two-sample trimmed t for unequal population variances", Biometrika 61;
Wilcox, "Introduction to Robust Estimation and Hypothesis Testing", 4.3 (one sample); Pocock (1977),
"Group sequential methods in the design and analysis of clinical trials", Biometrika 64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

TRIM = 0.2
"""Part of the ratios left out at each end."""
LOOKS = (6, 8, 12, 16)
"""Pairs after which a decision may fall. Fewer than six cannot support an error of 1 %."""
ALPHAS = (0.003, 0.005, 0.008, 0.009)
"""One-sided error spent at each look."""
CONTROL_ALPHA = 0.01
"""Two-sided error of the statement that the control has moved."""
CONTROL_BAND = 0.04
"""The control may move by this ratio before the machine is called moved, where no calibration
says how much it moves by itself."""

Decision = Literal["pass", "fail", "continue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Candidate over base, as a ratio minus one: -0.23 is 23 % slower."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimmedMean:
    """Of log ratios."""

    mean: float
    error: float
    """Standard error by Yuen."""
    degrees: int


def trimmed_mean(logs: npt.NDArray[np.float64]) -> TrimmedMean:
    """20 % trimmed mean of n values, its standard error and degrees of freedom.

    With g = floor(0.2 n), the error is s_w / (0.6 sqrt(n)), where s_w is the standard deviation of
    the winsorised values, with n - 2 g - 1 degrees of freedom.

    Raises:
        ValueError: fewer than three values, or one that is not finite.
    """
    if len(logs) < 3 or not np.isfinite(logs).all():
        raise ValueError("at least three finite log ratios are needed")
    n, cut = len(logs), math.floor(TRIM * len(logs))
    ordered = np.sort(logs)
    winsorised = np.clip(ordered, ordered[cut], ordered[n - 1 - cut])
    return TrimmedMean(
        mean=float(ordered[cut : n - cut].mean()),
        error=float(winsorised.std(ddof=1)) / ((1 - 2 * TRIM) * math.sqrt(n)),
        degrees=n - 2 * cut - 1,
    )


def change(ratios: Sequence[float], confidence: float = 0.95) -> Change:
    """The change that ratios (candidate / base) show, with a two-sided interval."""
    centre = trimmed_mean(np.log(np.asarray(ratios, dtype=np.float64)))
    half = float(stats.t.ppf(0.5 + confidence / 2, centre.degrees)) * centre.error
    return Change(
        value=math.expm1(centre.mean),
        low=math.expm1(centre.mean - half),
        high=math.expm1(centre.mean + half),
    )


def decide(ratios: Sequence[float], margin: float) -> Decision:
    """Judge after a look's number of pairs; in between it is always ``continue``.

    fail: the candidate is slower by more than ``margin`` (0.08 = 8 %); pass: it is not.
    """
    if len(ratios) not in LOOKS:
        return "continue"
    alpha = ALPHAS[LOOKS.index(len(ratios))]
    centre = trimmed_mean(np.log(np.asarray(ratios, dtype=np.float64)))
    half = float(stats.t.ppf(1 - alpha, centre.degrees)) * centre.error
    limit = math.log1p(-margin)
    if centre.mean + half < limit:
        return "fail"
    if centre.mean - half > limit:
        return "pass"
    return "continue"


def contaminated(control_ratios: Sequence[float], band: float = CONTROL_BAND) -> bool:
    """Whether the control, which no pipeline change can move, has moved: then the machine did."""
    if len(control_ratios) < 3:
        return False
    moved = change(control_ratios, 1 - CONTROL_ALPHA)
    return abs(math.log1p(moved.value)) > math.log1p(band) and not moved.low <= 0.0 <= moved.high


def pairs_needed(ratios: Sequence[float], margin: float) -> int | None:
    """Pairs after which an interval as noisy as this one would leave the limit to one side.

    None where the change lies so near to the limit that no practical number would do.
    """
    centre = trimmed_mean(np.log(np.asarray(ratios, dtype=np.float64)))
    distance = abs(centre.mean - math.log1p(-margin))
    if distance == 0.0:
        return None
    deviation = centre.error * math.sqrt(len(ratios))
    for pairs in range(len(ratios) + 1, 201):
        degrees = pairs - 2 * math.floor(TRIM * pairs) - 1
        half = float(stats.t.ppf(1 - ALPHAS[-1], degrees)) * deviation / math.sqrt(pairs)
        if half < distance:
            return pairs
    return None
