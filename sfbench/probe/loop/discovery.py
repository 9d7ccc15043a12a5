"""Finds the step in the first events of a run. Pure.

A *group* is what repeats: fetches and forwards, then updates; if every k-th one of those
fetches, k of them (each batch is used for k updates). The step is one period of the
*anchor*, the optimizer that is updated least often (a generator trained once per five critic
updates), and among equals the last one of a group. Training loaders are those that were fetched
in at least half of the groups with gradients enabled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sfbench.probe.hooks.events import Event, Fetch, Forward, Update

GROUPS_FOR_ONE_OPTIMIZER = 4
GROUPS_FOR_SEVERAL = 12
GROUPS_AT_MOST = 96
"""Without fetching again for so long, the fetches seen were no part of the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The step of a training loop."""

    anchor: Hashable
    updates_per_step: int
    loaders: frozenset[Hashable]
    """Keys of the training loaders; empty: there is no DataLoader."""
    primary: Hashable
    """The loader whose samples count; None without one."""
    counting: frozenset[Hashable] = frozenset()
    """The primary one, and others that are fetched in turn with it, never in the same step."""
    infers: bool = False
    """Without a loader: forwards without gradients are part of the loop, no validation."""
    model: Hashable
    """Without a loader, or ``trained``: the model whose inputs count; None if unknown."""
    trained: bool = False
    """Samples are those that the model is given, although there is a loader."""

    @property
    def samples_known(self) -> bool:
        """Whether samples can be counted at all."""
        return self.primary is not None or self.model is not None


@dataclass(slots=True)
class _Group:
    updates: Counter[Hashable] = field(default_factory=Counter)
    last_update: Hashable = None
    loaders: list[Hashable] = field(default_factory=list)
    forwards: Counter[Hashable] = field(default_factory=Counter)
    main: bool = True
    """No other thread fetched."""

    def add(self, following: _Group) -> None:
        """Take in the group that comes after this one."""
        self.updates += following.updates
        self.forwards += following.forwards
        self.last_update = following.last_update


def enough(events: Sequence[Event], optimizers: int) -> bool:
    """Whether the loop can be told from these events. ``optimizers``: how many exist."""
    wanted = GROUPS_FOR_ONE_OPTIMIZER if optimizers <= 1 else GROUPS_FOR_SEVERAL
    groups = _groups(events)
    fetching = sum(1 for group in groups if group.loaders)
    known = _merged(groups) if fetching != 1 else groups[:1]
    return len(known) >= wanted or len(groups) >= GROUPS_AT_MOST


def find_loop(events: Sequence[Event]) -> Loop:
    """The loop behind these events.

    Raises:
        ValueError: no update among them.
    """
    groups = _merged([group for group in _groups(events) if group.updates])
    if not groups:
        raise ValueError("no optimizer update seen")
    anchor = _anchor(groups)
    counts = Counter(g.updates[anchor] for g in groups if g.updates[anchor])
    loaders = _training_loaders(groups)
    return Loop(
        anchor=anchor,
        updates_per_step=counts.most_common(1)[0][0],
        loaders=frozenset(loaders),
        primary=loaders[0] if loaders else None,
        counting=_counting(groups, loaders),
        infers=not loaders and _infers(events),
        model=None if loaders else _counting_model(groups),
    )


def trained_model(events: Sequence[Event]) -> Hashable:
    """Of the models that were called, the one whose inputs tell the samples; None without any."""
    return _counting_model(_groups(events))


def _groups(events: Sequence[Event]) -> list[_Group]:
    """Split at the first fetch or training forward after an update; the last one may be open."""
    if not any(isinstance(e, Fetch | Forward) for e in events):
        return [_lone(e) for e in events if isinstance(e, Update)]
    groups = [_Group()]
    for event in events:
        if isinstance(event, Update):
            groups[-1].updates[event.key] += 1
            groups[-1].last_update = event.key
        elif isinstance(event, Fetch | Forward) and event.grad:
            if groups[-1].updates:
                groups.append(_Group())
            _note(groups[-1], event)
    return groups if groups[-1].updates else groups[:-1]


def _infers(events: Sequence[Event]) -> bool:
    """Whether forwards without gradients stand between the first updates already."""
    kinds = [e for e in events if isinstance(e, Update | Forward)]
    first = next((i for i, e in enumerate(kinds) if isinstance(e, Update)), len(kinds))
    return any(isinstance(e, Forward) and not e.grad for e in kinds[first:])


def _merged(groups: list[_Group]) -> list[_Group]:
    """One group per fetching one, if these come at equal distances of two or more."""
    places = [place for place, group in enumerate(groups) if group.loaders]
    distances = {after - place for place, after in pairwise(places)}
    if len(distances) != 1 or not all(group.main for group in groups):
        return groups
    if len(groups) - places[-1] > max(distances):
        return groups
    merged: list[_Group] = []
    for group in groups[places[0] :]:
        if group.loaders:
            merged.append(group)
        else:
            merged[-1].add(group)
    return merged


def _lone(update: Update) -> _Group:
    return _Group(updates=Counter([update.key]), last_update=update.key)


def _note(group: _Group, event: Fetch | Forward) -> None:
    if isinstance(event, Forward):
        group.forwards[event.key] += event.samples
    elif not event.started:
        group.main = group.main and event.main
        if event.key not in group.loaders:
            group.loaders.append(event.key)


def _anchor(groups: Sequence[_Group]) -> Hashable:
    total: Counter[Hashable] = Counter()
    for group in groups:
        total.update(group.updates)
    # One that stepped only once so far is not yet known to repeat.
    repeating = [key for key, n in total.items() if n > 1] or list(total)
    least = min(total[key] for key in repeating)
    candidates = [key for key in repeating if total[key] == least]
    for group in reversed(groups):
        if group.last_update in candidates:
            return group.last_update
    return candidates[-1]


def _training_loaders(groups: Sequence[_Group]) -> list[Hashable]:
    seen: Counter[Hashable] = Counter()
    order: dict[Hashable, int] = {}
    for group in groups:
        for place, key in enumerate(group.loaders):
            seen[key] += 1
            order.setdefault(key, place)
    often = [key for key, n in seen.items() if 2 * n >= len(groups)]
    return sorted(often, key=lambda key: order[key])


def _counting(groups: Sequence[_Group], loaders: Sequence[Hashable]) -> frozenset[Hashable]:
    chosen: set[Hashable] = set()
    for key in loaders:
        with_key = [group for group in groups if key in group.loaders]
        if not any(chosen.intersection(group.loaders) for group in with_key):
            chosen.add(key)
    return frozenset(chosen)


def _counting_model(groups: Sequence[_Group]) -> Hashable:
    """Of several models (generator, discriminator) the one that sees each sample fewest times."""
    total: Counter[Hashable] = Counter()
    for group in groups:
        total.update(group.forwards)
    known = {key: n for key, n in total.items() if n > 0}
    return min(known, key=lambda key: known[key]) if known else None
