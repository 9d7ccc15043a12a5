"""Stalls: what a script does between ordinary steps, each so many of them.

Where gradients are synchronised all ranks wait for the one that stalls. Its time is estimated from
all steps that were seen (size over period), not from the few measured ones that happened to hold
one: those are freed of it first. Evaluation and saving, which stand outside the training loop, are
priced in the same way on their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sfbench.analyze.intervals import Array
from sfbench.analyze.periods import (
    MIN_TIMES,
    Rule,
    find_rule,
    met_part,
    per_step,
    size_interval,
)
from sfbench.analyze.stall_events import (
    after_backward_s,
    evaluation_events,
    lengths,
    own_events,
    pass_starts,
    saving_events,
    usual_step_s,
)
from sfbench.analyze.steps import TOGETHER
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import Interval, Stall
from sfbench.protocol.records import LateStep, StallKind

TOGETHER_IN = 0.8
"""All ranks stall together if they do in this part of all stalls."""
ON_STARTS = 0.75
"""A stall is one of the epoch's start where this part of either comes with the other."""
OUTSIDE: tuple[StallKind, ...] = ("evaluation", "saving")
"""Kinds that stand outside of the training loop."""
MOST = 0.95
"""No more than this part of a step is taken off it."""
ROUNDS = 4
"""So many rules of one rank are looked for at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stalls:
    """What was found at one device count."""

    found: tuple[Stall, ...]
    per_step_s: Interval
    """What those of the training loop cost each step of the job."""
    steps: pd.DataFrame
    """The step frame, stalls taken off ``step_s`` and told in ``stall_s``."""

    @property
    def outside_s(self) -> float:
        """What evaluation and saving cost each step: ranks wait for the one that takes longest."""
        return sum(self.longest(kind) for kind in OUTSIDE)

    def longest(self, kind: StallKind) -> float:
        """Seconds per step of one kind, of the rank that spends most on it."""
        by_rank: Counter[int | None] = Counter()
        for stall in self.found:
            if stall.kind == kind:
                by_rank[stall.rank] += stall.per_step_s.value  # type: ignore[assignment]
        return max(by_rank.values(), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Group:
    """Stalls of one kind: a row for each, with launch, step and size_s."""

    rank: int | None
    """None: all ranks at the same steps."""
    events: pd.DataFrame
    rule: Rule | None
    epoch: bool = False
    """The rule is the start of a pass over the data."""


def find_stalls(launches: Sequence[MeasuredLaunch], steps: pd.DataFrame) -> Stalls:
    """Look at all steps of one device count, warmup and unmeasured ones too.

    ``steps``: its step frame. What comes by no rule, and at no line of the script that is known, is
    noise: it stays in the steps.
    """
    facts, seen = _Facts.of(launches, steps), _outside(steps)
    inside, moved, usual_s = [], [], usual_step_s(steps)
    for group in _groups(own_events(launches, steps), facts):
        stall = facts.stall(group)
        kind = _belongs_to(group, seen) if stall.kind == "other" else stall.kind
        if kind in OUTSIDE:
            moved.append((group, kind))
        elif _stands_out(stall, usual_s):
            inside.append((group, stall))
    if moved:
        steps = _apart(steps, moved)
    outside = [
        facts.stall(group, kind)
        for kind, events in _outside(steps).items()
        for group in _groups(events, facts)
    ]
    mine = [group for group, _ in inside]
    met = met_part([(group.rank, stall.size_s.value, group.rule) for group, stall in inside])
    return Stalls(
        found=(*(stall for _, stall in inside), *outside),
        per_step_s=_sum([stall.per_step_s for _, stall in inside], met),
        steps=_taken_off(steps, mine, after_backward_s(launches, steps)) if mine else steps,
    )


def _outside(steps: pd.DataFrame) -> dict[StallKind, pd.DataFrame]:
    return {"saving": saving_events(steps), "evaluation": evaluation_events(steps)}


def _belongs_to(group: _Group, seen: Mapping[StallKind, pd.DataFrame]) -> StallKind:
    """What a rank does in the steps in which it saves or evaluates is part of that.

    It copies the state that it saves, or adds up what it evaluated.
    """
    own = pd.MultiIndex.from_frame(group.events[["launch", "step"]])
    for kind, events in seen.items():
        mine = events if group.rank is None else events[(events["rank"] == group.rank).to_numpy()]
        if own.isin(pd.MultiIndex.from_frame(mine[["launch", "step"]])).mean() >= ON_STARTS:
            return kind
    return "other"


def _stands_out(stall: Stall, step_s: float) -> bool:
    """A few long times at one step of each launch are found by chance, unless they are large."""
    if stall.per == "irregular":
        return bool(stall.line)
    return stall.sure or stall.size_s.value > step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What is known beside the steps."""

    ranks: int
    lengths: Mapping[tuple[int, int], int]
    """(launch, rank) -> steps that it made."""
    starts: frozenset[tuple[int, int, int]]
    """(launch, rank, step) where a pass over the training data began."""
    late: Mapping[tuple[int, int, int], LateStep]
    """(launch, rank, step) -> what the rank was seen to do."""
    steps_per_pass: int | None

    @staticmethod
    def of(launches: Sequence[MeasuredLaunch], steps: pd.DataFrame) -> _Facts:
        """Of one device count."""
        records = {m.plan.index: m.record for m in launches if m.record is not None}
        return _Facts(
            ranks=int(steps["devices"].iloc[0]) if len(steps) else 0,
            lengths=lengths(steps),
            starts=frozenset(map(tuple, pass_starts(steps).to_numpy(dtype=np.int64).tolist())),
            late={
                (launch, seen.rank, seen.step): seen
                for launch, record in records.items()
                for seen in record.late
            },
            steps_per_pass=next((r.loop.steps_per_pass for r in records.values()), None),
        )

    def lengths_of(self, rank: int | None) -> dict[int, int]:
        """Launch -> steps of one rank; of the first where all are meant."""
        return {launch: n for (launch, who), n in self.lengths.items() if who == (rank or 0)}

    def stall(self, group: _Group, kind: StallKind = "other") -> Stall:
        """One group in figures; ``kind`` where nothing tells it."""
        sizes = group.events["size_s"].tolist()
        kinds, lines = Counter[StallKind](), Counter[str]()
        ranks = range(self.ranks) if group.rank is None else (group.rank,)
        for launch, step in group.events[["launch", "step"]].to_numpy(dtype=np.int64).tolist():
            seen = [self.late.get((launch, rank, step)) for rank in ranks]
            kinds.update(one.kind for one in seen if one is not None)
            lines.update(one.line for one in seen if one is not None and one.line)
        (line, times), *_ = lines.most_common(1) or [("", 0)]
        if kind == "other" and kinds:
            kind = kinds.most_common(1)[0][0]
        period = group.rule.period if group.rule else None
        epoch = group.epoch or (period is not None and self.steps_per_pass == period)
        return Stall(
            rank=group.rank if self.ranks > 1 else None,
            kind="epoch-start" if epoch and kind == "other" else kind,
            line=line if group.rule or times >= MIN_TIMES else "",
            per="epoch" if epoch else "steps" if period is not None else "irregular",
            period_steps=period,
            sure=group.rule is None or group.rule.sure,
            times=len(sizes),
            size_s=size_interval(sizes),
            per_step_s=per_step(
                sizes, sum(self.lengths_of(group.rank).values()), group.rule, _gaps(group.events)
            ),
        )

    def epoch_rule(self, rank: int | None, events: pd.DataFrame) -> Rule | None:
        """Where a stall comes with each pass over the data, the passes tell how often."""
        starts = self._passes([start for start in self.starts if start[1] == (rank or 0)])
        times = int((events["pass_started"] > 0).sum())
        if times < max(MIN_TIMES, ON_STARTS * len(events)) or times < ON_STARTS * len(starts):
            return None
        made = sum(self.lengths_of(rank).values())
        period = self.steps_per_pass or round(made / len(starts))
        due = max(times, len(starts))
        return Rule(period=period, place=0, times=times, due=due) if period > 1 else None

    def _passes(self, starts: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """A pass that starts while batches are replayed starts again with the next real fetch."""
        least = (self.steps_per_pass or 0) / 2
        kept: list[tuple[int, int, int]] = []
        for launch, rank, step in sorted(starts):
            if not kept or kept[-1][0] != launch or step - kept[-1][2] >= least:
                kept.append((launch, rank, step))
        return kept


def _gaps(events: pd.DataFrame) -> list[int]:
    """Steps from the start of each launch to its first stall, and from each to the next.

    None unless launches had two and more: one alone may as well come once per start.
    """
    if len(events) < 2 * events["launch"].nunique():
        return []
    by_launch = events.sort_values(["launch", "step"]).groupby("launch")["step"]
    gaps: list[int] = by_launch.diff().fillna(events["step"]).astype(int).tolist()
    return gaps


def _groups(events: pd.DataFrame, facts: _Facts) -> Iterator[_Group]:
    """By rank, or all ranks at once; by size where sizes of two kinds have rules of their own."""
    joined = events.groupby(["launch", "step"], as_index=False).agg(
        size_s=("size_s", "max"), ranks=("rank", "nunique"), pass_started=("pass_started", "max")
    )
    alike = (joined["ranks"] == facts.ranks).mean() if len(joined) else 0.0
    if facts.ranks > 1 and alike >= TOGETHER_IN:
        yield from _by_rule(None, joined, facts)
        return
    for rank in sorted(events["rank"].unique()):
        yield from _by_rule(int(rank), events[(events["rank"] == rank).to_numpy()], facts)


def _by_rule(rank: int | None, events: pd.DataFrame, facts: _Facts) -> Iterator[_Group]:
    """One rule after the other, as long as there is one."""
    for _ in range(ROUNDS):
        group = _ruled(rank, events, facts)
        if group is None:
            break
        yield group
        events = events.drop(group.events.index)
    if len(events):
        yield _Group(rank=rank, events=events, rule=None)


def _ruled(rank: int | None, events: pd.DataFrame, facts: _Facts) -> _Group | None:
    """A rule of all events, or of the large or the small ones, with what follows it."""
    epoch = facts.epoch_rule(rank, events)
    if epoch is not None:
        on_starts = events[(events["pass_started"] > 0).to_numpy()]
        return _Group(rank=rank, events=on_starts, rule=epoch, epoch=True)
    for candidates in (events, *_halves(events)):
        at = list(zip(candidates["launch"].tolist(), candidates["step"].tolist(), strict=True))
        rule = find_rule(at, facts.lengths_of(rank))
        if rule is not None:
            due = (candidates["step"] % rule.period == rule.place).to_numpy()
            return _Group(rank=rank, events=candidates[due], rule=rule)
    return None


def _halves(events: pd.DataFrame) -> list[pd.DataFrame]:
    """Large ones and small ones, parted at the widest gap."""
    if len(events) < 2 * MIN_TIMES:
        return []
    logs = np.log(np.sort(events["size_s"].to_numpy(dtype=np.float64)))
    border = math.exp(logs[np.diff(logs).argmax()]) * (1 + 1e-9)
    large = (events["size_s"] > border).to_numpy()
    return [events[large], events[~large]]


def _apart(steps: pd.DataFrame, groups: Sequence[tuple[_Group, StallKind]]) -> pd.DataFrame:
    """Evaluation that nothing but the rank's stack gave away becomes ``other_s``, as any is."""
    size_s = _sizes(steps, [group for group, _ in groups])
    saved_s = _sizes(steps, [group for group, kind in groups if kind == "saving"])
    return steps.assign(
        step_s=steps["step_s"] - size_s,
        between_s=np.maximum(0.0, steps["between_s"] - size_s),
        other_s=steps["other_s"] + size_s,
        saved_s=steps["saved_s"] + saved_s,
    )


def _taken_off(steps: pd.DataFrame, groups: Sequence[_Group], after_s: Array) -> pd.DataFrame:
    """Where ranks run together a stall of one is one of all.

    Others wait for what comes after a backward (``after_s``) in the step after it.
    """
    own = pd.Series(_sizes(steps, groups), index=steps.index)
    together = steps["rung"].isin(TOGETHER) & (steps["rung"] != "unsynced")
    late = pd.Series(np.minimum(own, after_s), index=steps.index)
    early = own - late
    at_once = _of_all(steps, early.where(together, 0.0))
    lost = early.where(~together, at_once) + late + _waited(steps, late.where(together, 0.0))
    stall_s = np.minimum(lost, MOST * steps["step_s"])
    return steps.assign(step_s=steps["step_s"] - stall_s, stall_s=stall_s)


def _of_all(steps: pd.DataFrame, own: pd.Series[float]) -> pd.Series[float]:
    """The longest of all ranks at the same step of the job."""
    return own.groupby([steps["launch"], steps["job_step"]]).transform("max")


def _waited(steps: pd.DataFrame, late: pd.Series[float]) -> pd.Series[float]:
    """What each rank waits for those that were later after the backward of the step before."""
    waits: pd.Series[float] = _of_all(steps, late).sub(late)
    rank = [steps["launch"], steps["rank"], steps["block"]]
    return waits.groupby(rank).shift(1, fill_value=0.0).where(steps["turn"] < 0, 0.0)


def _sizes(steps: pd.DataFrame, groups: Sequence[_Group]) -> Array:
    """What the groups' stalls take in each row of the frame."""
    total = np.zeros(len(steps))
    keys = pd.MultiIndex.from_frame(steps[["launch", "step"]])
    for group in groups:
        sizes = group.events.groupby(["launch", "step"])["size_s"].max()
        here = sizes.reindex(keys).fillna(0.0).to_numpy(dtype=np.float64)
        mine = np.full(len(steps), True) if group.rank is None else steps["rank"] == group.rank
        total += np.where(mine, here, 0.0)
    return total


def _sum(parts: Sequence[Interval], met: float) -> Interval:
    """Independent ones; ``met``: part of their sum that is left where ranks stop at one step."""
    value = met * sum(part.value for part in parts)
    low = math.hypot(*(part.value - (part.low or 0.0) for part in parts))
    high = math.hypot(*((part.high or part.value) - part.value for part in parts))
    return Interval(value=value, low=value - low, high=value + high)
