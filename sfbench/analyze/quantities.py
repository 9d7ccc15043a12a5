"""The terms that the parts of a step are made of: what the rungs say, cycle by cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sfbench.analyze.cycles import Cycles, filled_solo
from sfbench.analyze.intervals import Array
from sfbench.analyze.slow import MIN_CYCLES, Picked, pick_slow
from sfbench.common.schema import Interval, Rung
from sfbench.common.units import half_width, things

NO_STALLS = Interval(value=0.0, low=0.0, high=0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quantity:
    """Seconds per step, by cycle."""

    values: Array
    noise: Array
    """What its interval is made of; mostly the values themselves."""
    half_width_s: float | None = None
    """Of what cycles do not tell."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quantities:
    """All terms of one point."""

    by_name: Mapping[str, Quantity]
    """``train``: T_train, ``stalls``: what stalls cost each step, ``cached``: T_cached,
    ``slowest``: E_i max_r c_ri, ``others`` and ``solo``: means over others of c_r and s_r,
    ``excess``: c_slow less ``others``. What is not known is left out."""
    missing: Mapping[Rung, str]
    """Rungs that gave nothing, with the reason."""
    few: str | None = None
    """Why terms of ranks are left out although their rungs ran."""
    picked: Picked | None = None

    def part(self, terms: tuple[str, ...]) -> Quantity | None:
        """The first term less all others; None if one is not known."""
        if any(term not in self.by_name for term in terms):
            return None
        first, *rest = (self.by_name[term] for term in terms)
        if not rest:
            return first
        values = first.values - sum(term.values for term in rest)
        return Quantity(values=values, noise=values)

    def reason(self, rungs: tuple[Rung, ...]) -> str:
        """Why a part that needs these rungs is not known."""
        missing = (f"rung {rung}: {self.missing[rung]}" for rung in rungs if rung in self.missing)
        return next(missing, self.few or "not measured")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ranks:
    """Terms that tell ranks apart."""

    by_name: dict[str, Quantity] = field(default_factory=dict)
    few: str | None = None
    picked: Picked | None = None


def quantities(
    used: Cycles, unavailable: Mapping[Rung, str], stalls_s: Interval = NO_STALLS
) -> Quantities:
    """Take the terms from complete cycles. ``unavailable``: rung -> why it could not run.

    ``stalls_s``: what stalls cost each step; the cycles' steps are without them.
    """
    solo_s = filled_solo(used)
    tables: dict[Rung, Array] = {
        "cached": used.cached_s,
        "unsynced": used.unsynced_s,
        "solo": solo_s,
    }
    missing = {
        rung: unavailable.get(rung, "gave no measured step in steady state")
        for rung, values in tables.items()
        if not np.isfinite(values).all()
    }
    known = {"train": _plain(used.train_s), "stalls": _stalls(stalls_s, len(used.train_s))}
    if "cached" not in missing:
        known["cached"] = _plain(used.cached_s)
    if np.isfinite(used.slowest_s).all():
        known["slowest"] = _plain(used.slowest_s)
    ranks = _ranks(used, None if "solo" in missing else solo_s, "unsynced" not in missing)
    return Quantities(
        by_name=known | ranks.by_name, missing=missing, few=ranks.few, picked=ranks.picked
    )


def _stalls(per_step_s: Interval, cycles: int) -> Quantity:
    values = np.full(cycles, per_step_s.value)
    return Quantity(values=values, noise=values, half_width_s=half_width(per_step_s) or 0.0)


def _plain(values: Array) -> Quantity:
    return Quantity(values=values, noise=values)


def _ranks(used: Cycles, solo_s: Array | None, unsynced: bool) -> _Ranks:
    everyone = np.ones_like(used.unsynced_s, dtype=bool)
    if not unsynced:
        return _Ranks(by_name=_solo(solo_s, everyone))
    count, cycles = used.unsynced_s.shape[1], len(used.train_s)
    if count > 1 and cycles < MIN_CYCLES:
        return _Ranks(few=f"only {things(cycles, 'cycle')} measured, {MIN_CYCLES} tell a slow rank")
    picked = pick_slow(used.unsynced_s, used.batches_s) if count > 1 else None
    others = everyone.copy()
    if picked is not None and picked.rank is not None:
        others[np.arange(cycles), picked.slow] = False
    known = {
        "others": _plain(_mean_over(used.unsynced_s, others)),
        "excess": _excess(picked, cycles),
        **_solo(solo_s, others),
    }
    return _Ranks(by_name=known, picked=picked)


def _solo(
    solo_s: Array | None, ranks: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> dict[str, Quantity]:
    return {} if solo_s is None else {"solo": _plain(_mean_over(solo_s, ranks))}


def _excess(picked: Picked | None, cycles: int) -> Quantity:
    """The slow rank's; 0 if none is above noise, but known no better than the noise."""
    if picked is None:
        return _plain(np.zeros(cycles))
    if picked.rank is None:
        return Quantity(values=np.zeros(cycles), noise=picked.excess_s)
    return _plain(picked.excess_s)


def _mean_over(values: Array, ranks: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Array:
    mean: Array = np.where(ranks, values, 0.0).sum(axis=1) / ranks.sum(axis=1)
    return mean
