"""95 % intervals from few, grouped values: Student's t on rounds and blocks.

A value is measured in blocks, blocks stand in launches, and launches may differ by more than their
blocks do (another layout in memory, another mood of the machine). One-way random effects: an F test
tells whether launches differ; if p > 0.25 all blocks are pooled, else the launches are the
sample. The limit of 0.25 is that of Bozivich, Bancroft and Hartley (1956), "Power of analysis of
variance test procedures for certain incompletely specified models", Ann. Math. Stat. 27(4).

Two or three launches say little about how much launches vary (t with 1 degree of freedom is 12.7).
So below OWN_LAUNCHES all device counts of a sweep are asked together: LaunchVariance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from sfbench.common.schema import Interval

Array = npt.NDArray[np.float64]

CONFIDENCE = 0.95
POOL_ABOVE_P = 0.25
OWN_LAUNCHES = 4
"""From so many launches on a device count tells by itself how much its launches vary."""
WIDEST_FACTOR = 1000.0
"""A ratio that may be off by more than this has no interval worth a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How well a mean is known."""

    error: float
    """Standard error, in the unit of the values."""
    dof: float
    """Degrees of freedom behind it."""

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval."""
        return float(special.stdtrit(self.dof, (1 + CONFIDENCE) / 2)) * self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchVariance:
    """How much the mean of a launch varies, from all device counts of a sweep."""

    variance: float
    dof: float


def launch_variance(points: Sequence[Sequence[Array]]) -> LaunchVariance | None:
    """Variance between launches of one point, pooled over ``points`` (each: values by launch).

    With launch means m_r of R launches at each point: sum (m_r - m)^2 / sum (R - 1). None if
    launches differ no more than blocks do (F test over all points), or no point has two launches.
    Assumes that launches vary alike, in relative terms, at every device count.
    """
    groups = [[g for g in point if len(g)] for point in points]
    repeated = [point for point in groups if len(point) > 1]
    dof = sum(len(point) - 1 for point in repeated)
    if not dof:
        return None
    means = [np.array([g.mean() for g in point]) for point in repeated]
    variance = sum(float(((m - m.mean()) ** 2).sum()) for m in means) / dof
    launches = [g for point in repeated for g in point]
    size = len(launches) / sum(1 / len(g) for g in launches)
    if _f_test_pools(size * variance, dof, launches):
        return None
    return LaunchVariance(variance=variance, dof=dof)


def spread(groups: Sequence[Array], shared: LaunchVariance | None) -> Spread | None:
    """Spread of the mean over all values of one point, grouped by launch.

    From ``OWN_LAUNCHES`` on by its own launches (``grouped_spread``); below, by the sweep's
    variance between launches, or by blocks if launches do not differ.
    """
    groups = [group for group in groups if len(group)]
    if len(groups) >= OWN_LAUNCHES:
        return grouped_spread(groups)
    if shared is None or not groups:
        return grouped_spread([np.concatenate([np.empty(0), *groups])])
    sizes = np.array([len(group) for group in groups])
    weights = sizes / sizes.sum()
    return Spread(error=math.sqrt(shared.variance * float((weights**2).sum())), dof=shared.dof)


def grouped_spread(groups: Sequence[Array]) -> Spread | None:
    """Spread of the mean over all values, grouped by launch. None with fewer than two values.

    Pooled: s^2 / n with n - 1 degrees of freedom, if blocks of different launches differ no
    more than blocks of one. Else, with R launches of n_r values each, means m_r and grand mean m:
    R / (R - 1) * sum (n_r / n)^2 (m_r - m)^2 with R - 1 degrees of freedom.
    """
    groups = [group for group in groups if len(group)]
    values = np.concatenate([np.empty(0), *groups])
    if len(values) < 2:
        return None
    if len(groups) > 1 and _launches_differ(groups, values):
        return _between_launches(groups, values)
    return Spread(error=float(values.std(ddof=1)) / math.sqrt(len(values)), dof=len(values) - 1)


def _launches_differ(groups: Sequence[Array], values: Array) -> bool:
    dof = len(groups) - 1
    grand = values.mean()
    between = sum(len(group) * float(group.mean() - grand) ** 2 for group in groups) / dof
    return not _f_test_pools(between, dof, groups)


def _f_test_pools(between: float, dof: int, launches: Sequence[Array]) -> bool:
    """Whether the mean square between launches is no more than blocks within them explain."""
    within_dof = sum(len(group) for group in launches) - len(launches)
    if within_dof == 0:  # one block each: launches are all there is
        return False
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in launches) / within_dof
    if between <= within:
        return True
    if within == 0.0:
        return False
    return float(special.fdtrc(dof, within_dof, between / within)) > POOL_ABOVE_P


def _between_launches(groups: Sequence[Array], values: Array) -> Spread:
    weights = np.array([len(group) for group in groups]) / len(values)
    means = np.array([group.mean() for group in groups])
    count = len(groups)
    variance = count / (count - 1) * float((weights**2 * (means - values.mean()) ** 2).sum())
    return Spread(error=math.sqrt(variance), dof=count - 1)


def difference_spread(
    first: Spread | None, second: Spread | None, shared: LaunchVariance | None = None
) -> Spread | None:
    """Spread of the difference of two independent means (Welch 1947, Satterthwaite 1946).

    If both rest on the same ``shared`` variance its degrees of freedom count once.
    """
    if first is None or second is None:
        return None
    a, b = first.error**2, second.error**2
    if shared is not None and first.dof == second.dof == shared.dof:
        return Spread(error=math.sqrt(a + b), dof=shared.dof)
    if a + b == 0.0:
        return Spread(error=0.0, dof=min(first.dof, second.dof))
    dof = (a + b) ** 2 / (a**2 / first.dof + b**2 / second.dof)
    return Spread(error=math.sqrt(a + b), dof=dof)


def ratio_interval(value: float, log_spread: Spread | None) -> Interval:
    """Interval of a positive quantity from the spread of its logarithm: value * exp(+-half)."""
    if log_spread is None or log_spread.half_width > math.log(WIDEST_FACTOR):
        return Interval(value=value, low=None, high=None)
    factor = math.exp(log_spread.half_width)
    return Interval(value=value, low=value / factor, high=value * factor)


def mean_interval(value: float, spread: Spread | None) -> Interval:
    """Interval of a mean that may have either sign: value +- half."""
    if spread is None:
        return Interval(value=value, low=None, high=None)
    return Interval(value=value, low=value - spread.half_width, high=value + spread.half_width)


def loosened(interval: Interval, ratio: float) -> Interval:
    """An interval of a positive quantity that takes in an independent error of such a ratio."""
    if interval.low is None or interval.high is None or not ratio:
        return interval
    low = math.hypot(math.log(interval.value / interval.low), ratio)
    high = math.hypot(math.log(interval.high / interval.value), ratio)
    value = interval.value
    return Interval(value=value, low=value * math.exp(-low), high=value * math.exp(high))


def widened(interval: Interval, systematic: float) -> Interval:
    """An interval that takes in another, independent error of such a half-width."""
    if interval.low is None or interval.high is None:
        return interval
    value = interval.value
    return Interval(
        value=value,
        low=value - math.hypot(value - interval.low, systematic),
        high=value + math.hypot(interval.high - value, systematic),
    )
