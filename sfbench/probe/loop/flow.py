"""Turns events into steps: first it listens, then it counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sfbench.probe.hooks.events import Event, Excluded, Fetch, Forward, Met, Update
from sfbench.probe.loop.discovery import Loop, enough, find_loop
from sfbench.probe.loop.kept_batches import KeptBatches
from sfbench.probe.loop.own_time import HostTimes, Span, inside
from sfbench.probe.loop.step_ends import updates_in_step

UPDATES_ASTRAY = 48
"""After so many updates by others alone, the optimizer that ended steps is no longer in use."""


class StepEnd(NamedTuple):
    """What happened in one step."""

    mark: Any
    data_wait_s: float
    other_s: float
    samples: int
    fetches: int
    forward_s: float
    update_s: float
    host: HostTimes = HostTimes()
    elements: int = 0
    """Numbers in the batches' tensors; 0 where nobody looked."""


@dataclass(slots=True)
class _Sums:
    wait_s: float = 0.0
    other_s: float = 0.0
    samples: int = 0
    fetches: int = 0
    elements: int = 0
    forward_s: float = 0.0
    update_s: float = 0.0
    between_s: float | None = None
    forward_began: float = 0.0
    forward_ended: float = 0.0
    saved_s: float = 0.0
    passes: int = 0
    apart: bool = False
    """Another thread fetched."""
    met: list[Met] = field(default_factory=list)


class Flow:
    """Feeds on events in the order they happen and calls back at the end of each step.

    ``on_end`` is called at once, ``on_step`` with what happened in the step by ``settle`` at the
    latest: summing up costs more than the events themselves, and is left for between two blocks.

    While the loop is unknown events are kept; ``on_known`` is called once with the loop, and
    ``on_step`` right after it for the steps kept until then.
    """

    def __init__(
        self,
        on_known: Callable[[Loop], None],
        on_step: Callable[[StepEnd], None],
        on_end: Callable[[], None],
        may_decide: Callable[[], bool] = lambda: True,
    ) -> None:
        self.loop: Loop | None = None
        self.optimizers = 0
        """How many optimizers the script has made so far."""
        self.kept: list[Event] = []
        self.ended = 0
        """Steps so far, of which ``on_step`` may not have been told yet."""
        self._on_known = on_known
        self._on_step = on_step
        self._on_end = on_end
        self.anchor: Hashable = None
        """The optimizer whose every update ends a step, where there is one."""
        self.ordinary: set[Hashable] = set()
        """Loaders whose fetches are a matter of course."""
        self.later: list[Event] = []
        """What steps are made of, not summed up yet: always the same list."""
        self.foreign: tuple[Hashable, _Sums] | None = None
        """Fetched in this step from what is no training loader (so far as is known)."""
        self.elsewhere: deque[Fetch] = deque()
        """Fetched by other threads: brought in with the next update, since sums are not shared."""
        self.apart: deque[Any] = deque()
        """Those of them that are a matter of course."""
        self.step_began: float | None = None
        """When the step under way began, by the host's clock."""
        self._may_decide = may_decide
        self.check: Callable[[Loop, Sequence[Event]], Loop] = lambda loop, events: loop
        """May choose what tells the samples of a loop just found."""
        self._sums = _Sums()
        self._unused = _Sums()
        """Fetched, and nothing was trained on it yet."""
        self._pass_began: float | None = None
        """When the loader started, as long as nothing was trained since."""
        self._updates = 0
        self._astray = 0
        self._since_update = False
        self._other_began: float | None = None
        self._training: set[Hashable] = set()
        self._counting: set[Hashable] = set()
        self._settling = False
        self._by_fetch = True
        self._kept_batches = KeptBatches()
        self._given_apart = 0
        """Samples given to the model after a fetch from no training loader as yet."""

    def feed(self, event: Event) -> None:
        """Take the next event."""
        if self.loop is not None:
            self.count(event)
            return
        if isinstance(event, Fetch) and not event.main:
            self.elsewhere.append(event)
            return
        if isinstance(event, Update):
            self._bring_in(self.kept.append)
        self.kept.append(event)
        if isinstance(event, Update) and self.ready and self._may_decide():
            self.decide()

    @property
    def ready(self) -> bool:
        """Whether the loop can be told from what was seen."""
        return enough(self.kept, self.optimizers)

    def trains(self, key: Hashable) -> bool:
        """Whether a loader is (so far as is known) a training loader."""
        return self.loop is None or key in self._training

    @property
    def training(self) -> frozenset[Hashable]:
        """Keys of the training loaders known so far."""
        return frozenset(self._training)

    def decide(self) -> None:
        """Tell the loop from what was seen so far: an update at least."""
        loop = self.check(find_loop(self.kept), self.kept)
        self._training = set(loop.loaders)
        self._counting = set(loop.counting)
        self._on_known(loop)
        events, self.kept = self.kept, []
        self._know(loop)
        for event in events[:-1]:
            self._take(event)
        # From here on steps end now; those before were told in arrears.
        self._take_last(events[-1])

    def _know(self, loop: Loop) -> None:
        self.loop = loop
        self.ordinary.clear()
        self.ordinary.update(self._training & self._counting)
        self.anchor = loop.anchor if loop.updates_per_step == 1 else None
        self._by_fetch = not loop.trained

    def count(self, event: Event) -> None:
        """Take the next event of a known loop.

        In a step that is a matter of course, hooks put their events into ``later`` by themselves.
        """
        if isinstance(event, Fetch) and not event.main:
            self.elsewhere.append(event)
        elif self._is_plain(event):
            self.later.append(event)
        elif (ends := self._ends_step(event)) is not None:
            self.later.append(event)
            if ends:
                self.ended += 1
                self._on_end()
        else:
            self._at_once(event)

    def _is_plain(self, event: Event) -> bool:
        """Whether it may be summed up later, whatever comes next."""
        if isinstance(event, Fetch):
            return event.key in self.ordinary and event.grad and not event.started
        return isinstance(event, Forward)

    def _ends_step(self, event: Event) -> bool | None:
        """Whether an update ends a step; None: that is not known before it is summed up."""
        loop = self.loop
        assert loop is not None
        odd = self.foreign or self.elsewhere or self.apart
        if type(event) is not Update or event.key != loop.anchor or event.late or odd:
            return None
        if loop.updates_per_step == 1:
            return True
        made = updates_in_step(self.later, loop, self._updates, self._since_update) + 1
        return made % loop.updates_per_step == 0

    def settle(self) -> None:
        """Sum up all events so far."""
        later = self.later[:]
        self.later.clear()
        self._settling = True
        for event in later:
            self._take(event)
        self._settling = False

    def _at_once(self, event: Event) -> None:
        """Whether this one ends a step is not known before it is summed up."""
        self.settle()
        if type(event) is Update:
            self._bring_in(self._fetch)
        self._take_last(event)

    def _take_last(self, event: Event) -> None:
        before = self.ended
        self._take(event)
        if self.ended > before:
            self._on_end()

    def _take(self, event: Event) -> None:
        kind, loop = type(event), self.loop  # in every step: faster than isinstance
        assert loop is not None
        if kind is Fetch:
            self._fetch(event)  # type: ignore[arg-type]
        elif kind is Forward:
            self._forward(event, loop)  # type: ignore[arg-type]
        elif kind is Update:
            self._update(event, loop)  # type: ignore[arg-type]
        else:
            self._exclude(event)  # type: ignore[arg-type]

    def _fetch(self, event: Fetch) -> None:
        # Without gradients it is an evaluation, be it of the training data.
        if event.key not in self._training or not event.grad:
            if event.main:
                self._open_other(event.began)
            if event.grad:
                self._note_foreign(event)
            return
        if event.main:
            if self._other_began is not None:
                self._close_other(event.began)
            if self._since_update:
                self._since_update, self._updates = False, 0
            self._begins(event.began)
            self._sums.wait_s += event.ended - event.began
            self._sums.passes += event.started
        if event.key in self._counting:
            self._fetched(event)

    def _bring_in(self, take: Callable[[Fetch], None]) -> None:
        for fetches in (self.apart, self.elsewhere):
            while fetches:
                take(fetches.popleft())

    def _fetched(self, event: Fetch) -> None:
        if event.main and event.started:
            self._passes(event)
        elif event.main:  # what another thread did has lost its place among uses
            self._unused.wait_s += event.ended - event.began
        fetches = 0 if event.started else 1
        samples = event.samples if self._by_fetch else 0
        self._sums.samples += samples
        self._sums.fetches += fetches
        self._sums.apart |= not event.main
        self._sums.elements += event.elements
        self._unused.elements += event.elements
        self._unused.samples += samples
        self._unused.fetches += fetches

    def _passes(self, event: Fetch) -> None:
        """A loader starts again: batches before that which nothing was trained on do not count.

        One was taken to look at, or by zip one too many; or a whole pass went over the data, to
        learn its mean for example: that is no part of the step.
        """
        sums, unused = self._sums, self._unused
        if event.left or self._pass_began is not None:
            sums.samples -= unused.samples
            sums.fetches -= unused.fetches
            sums.elements -= unused.elements
        if self._pass_began is not None and unused.fetches:
            sums.wait_s -= unused.wait_s
            sums.other_s += event.began - self._pass_began
        self._unused, self._pass_began = _Sums(), event.ended

    def _forward(self, event: Forward, loop: Loop) -> None:
        if not event.grad:
            # Validation stands between an update and the next training fetch; a teacher's forward
            # inside the step does not.
            if self._since_update and not loop.infers:
                self._open_other(event.began)
            return
        trains = event.key == loop.model
        if self._other_began is not None:
            self._close_other(event.began)
            # Fetched by a loader that does not train, and gradients were forgotten.
            trains = trains and not (loop.trained and self.foreign is not None)
        if self._since_update:
            self._since_update = False
            if loop.primary is None:  # after an update this is where the next step begins
                self._updates = 0
        if self._unused.fetches:
            self._unused, self._pass_began = _Sums(), None
        self._begins(event.began)
        self._sums.forward_began = self._sums.forward_began or event.began
        self._sums.forward_ended = event.ended
        self._sums.forward_s += event.ended - event.began
        if trains:
            self._sums.samples += event.samples
        elif event.key == loop.model:
            self._given_apart += event.samples

    def _update(self, event: Update, loop: Loop) -> None:
        if self._other_began is not None:
            self._close_other(event.began)
        if self._unused.fetches:
            self._unused, self._pass_began = _Sums(), None
        # A closure that the optimizer calls runs forward and backward inside its step.
        self._sums.update_s += event.ended - max(event.began, self._sums.forward_ended)
        self._since_update = True
        ordinary = event.key == loop.anchor and not event.late
        if not ordinary and not self._is_anchor(event, loop):
            return
        self._astray = 0
        self._updates += 1
        if self._updates < loop.updates_per_step:
            return
        self._updates = 0
        self.ended += not self._settling
        sums, self._sums = self._sums, _Sums()
        if sums.fetches == 0 and self.foreign is not None and loop.primary is not None:
            self._adopt(self.foreign[0])
            foreign = self.foreign[1]
            sums.wait_s, sums.other_s = foreign.wait_s, 0.0
            sums.samples = foreign.samples if self._by_fetch else self._given_apart
            sums.fetches = foreign.fetches
        self.foreign, self._given_apart = None, 0
        if self._by_fetch and loop.primary is not None:
            sums.samples += self._kept_batches.samples(sums.fetches, sums.samples, sums.apart)
        self._on_step(
            StepEnd(
                event.mark, sums.wait_s, sums.other_s, sums.samples, sums.fetches,
                sums.forward_s, sums.update_s, self._host_times(sums, event), sums.elements,
            )
        )  # fmt: skip

    def _begins(self, at: float) -> None:
        """The first fetch or forward of a step."""
        if self._sums.between_s is None:
            if self.step_began is None:
                self.step_began = at
            self._sums.between_s = max(0.0, at - self.step_began - self._sums.other_s)

    def _host_times(self, sums: _Sums, update: Update) -> HostTimes:
        began = update.began if self.step_began is None else self.step_began
        self.step_began, between_s = update.ended, sums.between_s or 0.0
        before = Span(began, began + sums.other_s + between_s)
        return HostTimes(
            began, between_s, sums.forward_began, sums.forward_ended, update.ended,
            sums.saved_s, sums.passes, inside(before, sums.forward_ended, update, sums.met),
        )  # fmt: skip

    def _is_anchor(self, event: Update, loop: Loop) -> bool:
        """Whether this optimizer ends steps; new ones take over from those before them."""
        self._astray = 0 if event.key == loop.anchor else self._astray + 1
        if event.late or self._astray > UPDATES_ASTRAY:
            self._know(replace(loop, anchor=event.key))
            self._astray = self._updates = 0
        return self._astray == 0

    def _note_foreign(self, event: Fetch) -> None:
        if self.foreign is None or self.foreign[0] != event.key:
            self.foreign = (event.key, _Sums())
        sums = self.foreign[1]
        sums.wait_s += (event.ended - event.began) if event.main else 0.0
        sums.samples += event.samples
        sums.fetches += not event.started

    def _adopt(self, key: Hashable) -> None:
        """The script made its training loader anew: what looked foreign has led to an update."""
        self._training.add(key)
        self._counting.add(key)
        self.ordinary.add(key)

    def _exclude(self, event: Excluded | Met) -> None:
        if isinstance(event, Met):
            self._sums.met.append(event)
            return
        self._sums.saved_s += event.ended - event.began
        if self._other_began is None:
            self._sums.other_s += event.ended - event.began

    def _open_other(self, at: float) -> None:
        if self._other_began is None:
            self._other_began = at

    def _close_other(self, at: float) -> None:
        assert self._other_began is not None
        self._sums.other_s += at - self._other_began
        self._other_began = None
