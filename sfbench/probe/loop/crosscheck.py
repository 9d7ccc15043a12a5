"""Do a loader's batches and what the model is given tell the same samples? Pure.

A loader that gives single samples or whole chunks, a loop that stacks or cuts them anew, one rank
that reads for all, a loop that fetches one batch ahead: in all of these what is fetched in a step
is not what the step trains on. What the DDP model is given is.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from sfbench.probe.hooks.events import Event, Fetch, Forward, Update
from sfbench.probe.loop.discovery import Loop, trained_model


@dataclass(slots=True)
class FetchedAndGiven:
    """One step, as loader and model tell it."""

    fetched: int = 0
    fetches: int = 0
    given: int = 0
    forwards: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossChecked:
    """A loop whose samples were cross-checked."""

    loop: Loop
    note: str = ""
    """If they disagree, what is believed."""


def cross_check(
    loop: Loop, events: Sequence[Event], *, by_index: bool, world_size: int
) -> CrossChecked:
    """Count what the model is given (``loop.trained``) if the loader's count is not that.

    ``by_index``: the loader's count comes from the indices that the batch sampler gave out, which
    the model's input seldom knows better: it may be flattened, packed or transposed.
    """
    model = trained_model(events)
    if loop.primary is None or model is None:
        return CrossChecked(loop=loop)
    steps = steps_seen(loop, events, model)
    if not steps or not all(step.given for step in steps):
        return CrossChecked(loop=loop)
    fetched, given = median(s.fetched for s in steps), median(s.given for s in steps)
    trained = replace(loop, trained=True, model=model)
    if fetched == given:
        ahead = any(step.fetched != step.given for step in steps)
        return CrossChecked(loop=trained if ahead else loop)
    if by_index and fetched != world_size * given:
        return CrossChecked(loop=loop)
    if not by_index and _used_again(steps):
        return CrossChecked(loop=loop)
    note = (
        f"a step fetches {fetched:g} samples from the loader and trains on {given:g}, as the "
        "model's input tells: the latter are counted"
    )
    return CrossChecked(loop=trained, note=note)


def steps_seen(loop: Loop, events: Sequence[Event], model: Hashable) -> list[FetchedAndGiven]:
    """The whole steps among these events."""
    steps, now, updates = [], FetchedAndGiven(), 0
    for event in events:
        if isinstance(event, Fetch) and event.grad and event.key in loop.counting:
            if event.started and not now.forwards:
                now = (
                    FetchedAndGiven()
                )  # a batch to look at, or a pass over the data: nothing was trained
            now.fetched += event.samples
            now.fetches += not event.started
        elif isinstance(event, Forward) and event.grad and event.key == model:
            now.given += event.samples
            now.forwards += 1
        elif isinstance(event, Update) and event.key == loop.anchor:
            updates += 1
            if updates == loop.updates_per_step:
                steps.append(now)
                now, updates = FetchedAndGiven(), 0
    return steps


def _used_again(steps: Sequence[FetchedAndGiven]) -> bool:
    """Whether each batch goes into the model several times: at once (views), or in turn."""
    times = {step.given / step.fetched for step in steps if step.fetched}
    whole = len(times) == 1 and min(times) == round(min(times)) > 1
    return whole and all(step.forwards % max(1, step.fetches) == 0 for step in steps)
