"""straggler: the others wait for a rank that is slower.

Two findings share the name:

* ``persistent``: one rank's unsynced step is longer than the others' in cycle after cycle, by more
  than noise (share ``straggler``, see ``sfbench.analyze.slow``).
* ``rotating``: another rank is the slow one each step (share ``jitter``).

Where it is slow comes from its own forward, update and the rest (backward) beside the others' on
the unsynced rung, where nobody waits for anybody. Slow while all others are parked (rung solo): the
device. Slow only beside the others: the host. Ready to run without a core: another process.

Disproved if swapping the rank to another device leaves the slowness with the rank (its data or
its code), or if it goes away with the other ranks parked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sfbench.analyze.parts import Part
from sfbench.analyze.phases import Phases, phases
from sfbench.analyze.repeats import Unevenness, unevenness
from sfbench.common import units
from sfbench.common.schema import Diagnosis, RankInfo
from sfbench.diagnose.case import Case
from sfbench.diagnose.numbers import Evidence, common, rounded
from sfbench.diagnose.recoverable import regain
from sfbench.diagnose.severity import Judgement

ID = "straggler"
ONE_PHASE = 0.7
"""Part of the excess that one phase must hold to be named; else it is everything."""
ALONE = 0.5
"""Part of the excess that must be there in solo steps too for a slow device."""
BY_OTHERS = 0.5
"""Part of the excess that waiting for a core must explain for another process to be named."""
SAME_BATCH = 0.5
"""Part of the variance that must come again with the same batch for uneven batches."""
RARE_PAUSES = 0.5
"""Part of the time above the median that the slowest 5 % of steps must hold for pauses."""
SLOW_CLOCK = 0.03
"""A clock that is lower than the others' by this ratio is worth a word."""
DISPROOF_ONE = "not the device if the slowness stays with the rank when it moves to another device"
DISPROOF_MANY = "not jitter if batches of equal cost, with garbage collection off, take as long"

_WHERE = {"forward_s": "forward", "backward_s": "backward", "update_s": "optimizer step"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slow:
    """The slow rank beside the mean of the others; seconds per step."""

    info: RankInfo
    excess_s: float
    by_phase_s: dict[str, float]
    where: str
    solo_excess_s: float | None
    alone: bool | None
    """Slow while the others are parked; None: no solo steps."""
    delay_excess_s: float | None
    cpu_excess_s: float | None

    @property
    def by_others(self) -> bool:
        """Whether waiting for a core explains the excess."""
        return (self.delay_excess_s or 0.0) >= BY_OTHERS * self.excess_s > 0


def diagnose_straggler(case: Case, part: Part, judged: Judgement) -> Diagnosis | None:
    """Judge the ``straggler`` share: one rank that is slow in every cycle."""
    rank = case.point.slow_rank
    if rank is None:
        return None
    slow = _look(case, rank)
    return Diagnosis(
        id=ID,
        devices=case.devices,
        severity=judged.severity,
        rank=rank,
        regain=regain(case, part),
        evidence={
            "kind": "persistent",
            **common(case, part, judged),
            **_evidence(slow),
            **_gpu_evidence(case, rank),
            "disproof": DISPROOF_ONE,
        },
        advice=(*_advice(slow, emulated=case.loop.emulated), *_gpu_advice(case, rank)),
    )


def diagnose_jitter(case: Case, part: Part, judged: Judgement) -> Diagnosis | None:
    """Judge the ``jitter`` share: a different rank is slow each step."""
    if case.devices == 1:
        return None
    found = unevenness(case.steps, case.kept_batches)
    likely = _likely(found)
    return Diagnosis(
        id=ID,
        devices=case.devices,
        severity=judged.severity,
        rank=None,
        regain=regain(case, part),
        evidence={
            "kind": "rotating",
            **common(case, part, judged),
            "likely": likely,
            "variance_that_repeats_with_the_batch_share": rounded(
                found.same_batch_share if found else None
            ),
            "excess_in_slowest_5_percent_of_steps_share": rounded(
                found.rare_share if found else None
            ),
            "disproof": DISPROOF_MANY,
        },
        advice=_JITTER_ADVICE[likely],
    )


def _look(case: Case, rank: int) -> _Slow:
    apart, solo = phases(case.steps, "unsynced"), phases(case.steps, "solo")
    by_phase = {name: _excess(apart.of(name), rank) for name in _WHERE}
    excess_s = _excess(apart.step_s, rank)
    solo_excess_s = _solo_excess(solo, rank)
    others = tuple(r for r in range(case.devices) if r != rank)
    mine, theirs = case.core_use("unsynced", (rank,)), case.core_use("unsynced", others)
    return _Slow(
        info=case.infos[rank],
        excess_s=excess_s,
        by_phase_s=by_phase,
        where=_where(by_phase, excess_s),
        solo_excess_s=solo_excess_s,
        alone=None if solo_excess_s is None else solo_excess_s >= ALONE * excess_s,
        # Of a thread that launches work and waits for it, this explains nothing.
        delay_excess_s=(
            mine.delay_s - theirs.delay_s if mine and theirs and not case.on_device else None
        ),
        cpu_excess_s=mine.cpu_s - theirs.cpu_s if mine and theirs else None,
    )


def _excess(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], rank: int) -> float:
    return float(values[rank] - np.delete(values, rank).mean())


def _solo_excess(solo: Phases, rank: int) -> float | None:
    return _excess(solo.step_s, rank) if np.isfinite(solo.step_s).all() else None


def _where(by_phase: dict[str, float], excess_s: float) -> str:
    if not all(map(math.isfinite, by_phase.values())):
        return "unknown"  # phases were not measured
    name, seconds = max(by_phase.items(), key=lambda item: item[1])
    return _WHERE[name] if seconds >= ONE_PHASE * excess_s else "everything"


def _evidence(slow: _Slow) -> Evidence:
    return {
        "host": slow.info.host,
        "local_rank": slow.info.local_rank,
        "device": slow.info.device,
        "where": slow.where,
        "slower_s_per_step": rounded(slow.excess_s),
        **{f"slower_{name}": rounded(seconds) for name, seconds in slow.by_phase_s.items()},
        "slower_alone_s_per_step": rounded(slow.solo_excess_s),
        "alone": slow.alone,
        "longer_without_core_s_per_step": rounded(slow.delay_excess_s),
        "more_cpu_s_per_step": rounded(slow.cpu_excess_s),
    }


def _gpu_evidence(case: Case, rank: int) -> Evidence:
    """The rank's GPU beside the mean of the others'; nothing if one is not known."""
    mine = case.gpu(rank)
    theirs = [case.gpu(r) for r in range(case.devices) if r != rank]
    others = [gpu for gpu in theirs if gpu is not None]
    if mine is None or len(others) < len(theirs):
        return {}
    return {
        "clock_hz": rounded(mine.clock_hz),
        "others_clock_hz": rounded(sum(gpu.clock_hz for gpu in others) / len(others)),
        "temperature_c": rounded(mine.temperature_c),
        "others_temperature_c": rounded(sum(gpu.temperature_c for gpu in others) / len(others)),
        "gpu_load_ratio": rounded(mine.load_ratio),
        "others_gpu_load_ratio": rounded(sum(gpu.load_ratio for gpu in others) / len(others)),
        "throttled_by": ", ".join(mine.throttled) or "nothing",
    }


def _gpu_advice(case: Case, rank: int) -> tuple[str, ...]:
    found = _gpu_evidence(case, rank)
    if not found:
        return ()
    clock, others = float(found["clock_hz"] or 0), float(found["others_clock_hz"] or 0)
    if clock >= (1 - SLOW_CLOCK) * others:
        return ()
    return (
        f"Its clock ran at {clock / 1e6:.0f} MHz, the others' at {others / 1e6:.0f}, at "
        f"{found['temperature_c']:g} °C beside {found['others_temperature_c']:g}; held down by: "
        f"{found['throttled_by']}. See to its cooling, power limit and clock settings.",
    )


def _advice(slow: _Slow, *, emulated: bool) -> tuple[str, ...]:
    info = slow.info
    who = f"Rank {info.rank} (host {info.host}, local rank {info.local_rank}, {info.device})"
    what = f"{who} takes {units.seconds(slow.excess_s)} longer per step than the others"
    if slow.by_others:
        return (
            f"{what}; for {units.seconds(slow.delay_excess_s)} it is ready but has no core: "
            "another process runs there. Find it with top and end it, or pin the ranks to cores of "
            "their own.",
        )
    what = what if slow.where == "unknown" else f"{what}, in {slow.where}"
    if slow.alone is False:
        return (
            f"{what}, but only while the other ranks run: the host is busy there. Compare its "
            "cores, memory node and PCIe lanes with the others', and what else runs on them.",
        )
    if info.device.startswith("cpu") and not emulated:
        return (
            f"{what}, alone as well: look for code that only this rank runs (logging, saving, "
            "averaging weights) and for more data on it.",
            "If there is none, its cores are slower than the others': compare their kind, clock "
            "and what else runs on them.",
        )
    return (
        f"{what}, alone as well: exchange the device or leave it out. Look at its clock, "
        "temperature and power limit first.",
        "If another device in its place is as slow, it is the rank's own work: more data, or code "
        "that only this rank runs (logging, saving, averaging weights).",
    )


def _likely(found: Unevenness | None) -> str:
    if found is None:
        return "unknown"
    if found.same_batch_share >= SAME_BATCH:
        return "uneven-batches"
    return "rare-pauses" if found.rare_share >= RARE_PAUSES else "random"


_JITTER_ADVICE: dict[str, tuple[str, ...]] = {
    "uneven-batches": (
        "Batches cost unlike amounts, and the same ones again and again: sort samples by length "
        "into batches of equal cost, the same on all ranks (bucketing), or cap the tokens per "
        "batch instead of the samples.",
    ),
    "rare-pauses": (
        "Few steps are much longer than the rest: call gc.disable() and collect at the same step "
        "on all ranks; look for logging, checkpoints or other processes that stop one rank.",
    ),
    "random": (
        "Another rank is slow each step, whatever the batch: leave a core free per rank for the "
        "system, pin ranks to cores, and look for other processes on the hosts.",
    ),
    "unknown": (
        "Another rank is slow each step: compare batches of equal cost with the real ones, and a "
        "run with garbage collection off.",
    ),
}
