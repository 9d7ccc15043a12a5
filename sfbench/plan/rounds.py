"""Which launch comes next: many short ones, in turn, and more if an interval needs them. Pure.

Launches of one job differ more than the blocks within one do, and few of them say little about how
much: three leave two degrees of freedom, eight leave seven. So the measuring budget of a device
count is split over as many launches as starting them allows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from sfbench.plan.machine import Machine
from sfbench.plan.planner import FIRST_SEED, pinning
from sfbench.plan.sweep_plan import LaunchPlan, SweepPlan

LAUNCHES = 8
"""Of each device count, if starting one is cheap."""
LEAST = 3
"""If starting one is dear, or steps are slow."""
MOST_EXTRA = 8
"""Launches that a device count may get of what others did not need."""
LOOK = 6
"""Launches after which the precision is looked at: fixed beforehand, since looking after each
would stop too early."""
SLACK = 1.05
"""Of the time that was announced: it is a round number."""
SHORT_CYCLES = 3
"""Cycles that a launch is planned for if there are many of them."""
OVERRUN = 1.1
"""A launch that measured for so many times as long as planned had steps too slow for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """What a launch cost and brought."""

    devices: int
    round: int
    ok: bool
    measured_s: float = 0.0
    wall_s: float = 0.0
    last: bool = False
    """No further one of its device count can be made."""
    log_rate: float | None = None
    """Logarithm of its samples/s."""


def next_launch(plan: SweepPlan, machine: Machine, done: Sequence[Launched]) -> LaunchPlan | None:
    """The launch after those in ``done``; None if the sweep is complete.

    With ``--rounds`` given each device count is visited so often. Else their number comes from what
    the first launch of a count cost (``wanted_launches``), ends early at ``LOOK`` launches if
    their interval is below ``--precision``, and what is left goes to the count whose interval is
    widest. Beyond ``LEAST`` of each count none is made that would end later than announced. A
    count that has only failed so far, or lacks a node, is not
    tried again.
    """
    for devices, round_ in _visits(plan, done):
        if _hopeless(done, devices):
            continue
        return LaunchPlan(
            index=len(done),
            round=round_,
            devices=devices,
            cores=pinning(plan, plan.spread(devices)[0], machine),
            seconds=_seconds(plan, [one for one in done if one.devices == devices]),
            seed=FIRST_SEED + len(done),
            cycles=SHORT_CYCLES if plan.rounds is None else None,
        )
    return None


def expected_launches(plan: SweepPlan) -> int:
    """How many launches a sweep has, as far as that is known before."""
    return len(plan.devices) * (LAUNCHES if plan.rounds is None else plan.rounds)


def expected_s(plan: SweepPlan) -> float:
    """About how long a sweep takes: to start and warm up, about as long again as to measure."""
    return 2 * plan.seconds * len(plan.devices)


def wanted_launches(plan: SweepPlan, first: Launched) -> int:
    """How many launches of a device count ``plan.seconds`` pays for, given what the first one cost.

    Starting all of them takes no longer than measuring, but ``LEAST`` are made all the same; and
    if even the shortest launch takes longer than its part, only so many as fit.
    """
    if plan.rounds is not None:
        return plan.rounds
    starting_s = max(1e-9, first.wall_s - first.measured_s)
    cheap = min(LAUNCHES, max(LEAST, math.floor(plan.seconds / starting_s)))
    if first.measured_s > OVERRUN * plan.seconds / LAUNCHES:
        cheap = min(cheap, max(LEAST, math.floor(plan.seconds / first.measured_s)))
    return cheap


def _visits(plan: SweepPlan, done: Sequence[Launched]) -> Iterator[tuple[int, int]]:
    """Device counts in turn in each round, the next round backwards, then the extra launches."""
    made = {(one.devices, one.round) for one in done}
    first = {n: next((one for one in done if one.devices == n), None) for n in plan.devices}
    most = plan.rounds or LAUNCHES
    for round_ in range(most):
        # Going there and back again keeps a slow drift of the machine from favouring one count.
        order: Iterable[int] = plan.devices if round_ % 2 == 0 else reversed(plan.devices)
        for devices in order:
            known = first[devices]
            wanted = most if known is None else wanted_launches(plan, known)
            if (devices, round_) in made or round_ >= wanted:
                continue
            if round_ >= LEAST and plan.rounds is None and not _in_time(plan, done, devices):
                continue
            if round_ == LOOK and plan.rounds is None and _precise(plan, done, devices):
                continue
            if round_ > LOOK and plan.rounds is None and (devices, LOOK) not in made:
                continue
            yield devices, round_
    if plan.rounds is None:
        yield from _extra(plan, done)


def _extra(plan: SweepPlan, done: Sequence[Launched]) -> Iterator[tuple[int, int]]:
    """What precise counts have left over goes to the least precise one."""
    good = [one for one in done if one.ok]
    left_s = len({one.devices for one in good}) * plan.seconds - sum(o.measured_s for o in good)
    made = Counter(one.devices for one in good)
    widths = {n: half_width(done, n) for n in made if made[n] < LAUNCHES + MOST_EXTRA}
    if not widths:
        return
    widest = max(widths, key=lambda n: widths[n] * _reached(done, n))
    cost_s = float(np.mean([one.measured_s for one in good if one.devices == widest]))
    in_time = _in_time(plan, done, widest)
    if widths[widest] > plan.precision and 2 * cost_s <= left_s and in_time:
        yield widest, 1 + max(one.round for one in done if one.devices == widest)


def _in_time(plan: SweepPlan, done: Sequence[Launched], devices: int) -> bool:
    """Whether one launch more of a count ends within what was announced for all of them."""
    walls = [one.wall_s for one in done if one.devices == devices]
    spent_s = sum(one.wall_s for one in done)
    return spent_s + float(np.mean(walls)) <= SLACK * expected_s(plan)


def _precise(plan: SweepPlan, done: Sequence[Launched], devices: int) -> bool:
    return half_width(done, devices) <= plan.precision


def half_width(done: Sequence[Launched], devices: int) -> float:
    """Relative half-width of a device count's rate from its launches alone; inf below three."""
    logs = [o.log_rate for o in done if o.devices == devices and o.log_rate is not None]
    if len(logs) < LEAST:
        return math.inf
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    return float(special.stdtrit(len(logs) - 1, 0.975)) * error


def _reached(done: Sequence[Launched], devices: int) -> float:
    """Efficiency as far as launches tell it, 1 if they do not: its interval is read in points, and
    ten percent of a small efficiency are few of them."""
    mine, one = _mean_log(done, devices), _mean_log(done, 1)
    return 1.0 if mine is None or one is None else math.exp(mine - one) / devices


def _mean_log(done: Sequence[Launched], devices: int) -> float | None:
    logs = [o.log_rate for o in done if o.devices == devices and o.log_rate is not None]
    return float(np.mean(logs)) if logs else None


def _seconds(plan: SweepPlan, before: Sequence[Launched]) -> float:
    """Measuring budget of a launch: an even part of what is left for its device count."""
    if plan.rounds is not None:
        return plan.seconds / plan.rounds
    part = plan.seconds / LAUNCHES
    good = [one for one in before if one.ok]
    if not good:
        return part
    left = wanted_launches(plan, good[0]) - len(before)
    rest_s = plan.seconds - sum(one.measured_s for one in good)
    return max(part, rest_s / left) if left > 0 else max(part, good[-1].measured_s)


def _hopeless(done: Sequence[Launched], devices: int) -> bool:
    mine = [one for one in done if one.devices == devices]
    return bool(mine) and (not any(one.ok for one in mine) or any(one.last for one in mine))
