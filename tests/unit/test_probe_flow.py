"""Events become steps with their waiting, their samples and what was not training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfbench.probe.hooks.events import Excluded, Fetch, Forward, Update
from sfbench.probe.loop.discovery import Loop
from sfbench.probe.loop.flow import UPDATES_ASTRAY, Flow, StepEnd
from sfbench.probe.loop.kept_batches import SILENT
from sfbench.probe.loop.own_time import HostTimes


@dataclass
class Script:
    """Feeds a flow in the order of a script, on a clock that only moves when told."""

    now: float = 0.0
    loops: list[Loop] = field(default_factory=list)
    told: list[StepEnd] = field(default_factory=list)
    ended_at: list[int] = field(default_factory=list)
    """At each end of a step that was told at once, how many there were."""

    def __post_init__(self) -> None:
        self.start(self.loops.append)

    def start(self, known: Callable[[Loop], None]) -> None:
        self.flow = Flow(known, self.told.append, self._ended)
        self.flow.optimizers = 1

    def _ended(self) -> None:
        self.ended_at.append(self.flow.ended)

    @property
    def steps(self) -> list[StepEnd]:
        self.flow.settle()
        assert self.flow.ended == len(self.told)
        return [step._replace(host=HostTimes()) for step in self.told]

    def fetch(self, key: str = "train", *, takes: float = 0.5, grad: bool = True) -> None:
        began, self.now = self.now, self.now + takes
        self.flow.feed(Fetch(key, began, self.now, 8, True, grad))

    def forward(self, *, takes: float = 1.0, grad: bool = True) -> None:
        began, self.now = self.now, self.now + takes
        self.flow.feed(Forward("model", began, self.now, 8, grad))

    def update(self, *, takes: float = 0.25) -> None:
        began, self.now = self.now, self.now + takes
        self.flow.feed(Update("opt", began, self.now, self.now))

    def step(self) -> None:
        self.fetch()
        self.forward()
        self.update()


def test_kept_steps_are_told_in_arrears_and_only_the_last_ends_at_once() -> None:
    # GIVEN / WHEN: four groups are enough for one optimizer
    script = Script()
    for _ in range(4):
        script.step()
    # THEN
    assert len(script.loops) == 1
    assert script.ended_at == [4]
    assert script.steps == [StepEnd(1.75 * n, 0.5, 0.0, 8, 1, 1.0, 0.25) for n in (1, 2, 3, 4)]


def test_validation_between_steps_is_told_apart() -> None:
    script = Script()
    for _ in range(4):
        script.step()
    # WHEN: a validation of two batches (2 x (0.5 + 1.0) s) stands before the next step
    for _ in range(2):
        script.fetch("val", grad=False)
        script.forward(grad=False)
    script.step()
    # THEN: neither its wait nor its samples are the step's
    assert script.steps[-1] == StepEnd(script.now, 0.5, 3.0, 8, 1, 1.0, 0.25)


def test_evaluation_on_the_training_loader_is_told_apart() -> None:
    script = Script()
    for _ in range(4):
        script.step()
    # WHEN the loader that trains is gone through without gradients
    for _ in range(2):
        script.fetch(grad=False)
        script.forward(grad=False)
    script.step()
    # THEN its batches are no samples
    assert script.steps[-1] == StepEnd(script.now, 0.5, 3.0, 8, 1, 1.0, 0.25)


def test_teacher_forward_inside_a_step_belongs_to_it() -> None:
    script = Script()
    for _ in range(5):
        script.fetch()
        script.forward(grad=False)
        script.forward()
        script.update()
    assert [s.other_s for s in script.steps] == [0.0] * 5


def test_saving_is_told_apart() -> None:
    script = Script()
    for _ in range(4):
        script.step()
    script.flow.feed(Excluded(script.now, script.now + 2.0))
    script.step()
    assert script.steps[-1].other_s == 2.0


def test_training_loader_made_anew_is_adopted() -> None:
    # GIVEN a script whose second epoch makes a loader over a new dataset object
    script = Script()
    for _ in range(4):
        script.step()
    # WHEN
    for _ in range(3):
        script.fetch("second epoch")
        script.forward()
        script.update()
    # THEN samples and waiting go on as before
    assert [(s.samples, s.data_wait_s, s.other_s) for s in script.steps] == [(8, 0.5, 0.0)] * 7
    assert script.flow.trains("second epoch")


@pytest.mark.parametrize("main", [True, False])
def test_only_the_training_thread_waits(main: bool) -> None:
    script = Script()
    for _ in range(5):
        script.flow.feed(Fetch("train", script.now, script.now + 0.5, 8, main, True))
        script.forward()
        script.update()
    assert script.steps[-1].data_wait_s == (0.5 if main else 0.0)
    assert script.steps[-1].samples == 8


def test_batch_of_an_iterator_left_before_its_end_counts_only_if_used() -> None:
    # GIVEN a script that looks at one batch of a fresh iterator before each epoch
    script = Script()
    for _ in range(4):
        script.flow.feed(Fetch("train", script.now, script.now, 0, True, True, True))
        script.fetch()
        # WHEN it makes another iterator, and trains on that one
        script.flow.feed(Fetch("train", script.now, script.now, 0, True, True, True, left=True))
        script.step()
    # THEN
    assert [(s.samples, s.fetches) for s in script.steps] == [(8, 1)] * 4


def test_whole_pass_without_training_is_told_apart() -> None:
    # GIVEN a script that goes over all of its data before each epoch
    script = Script()
    for _ in range(4):
        for batches in (3, 1):
            script.flow.feed(Fetch("train", script.now, script.now, 0, True, True, True))
            for _ in range(batches - 1):
                script.fetch()
        # WHEN the second pass trains
        script.step()
    # THEN of 2 x 0.5 s of loading before each step nothing is the step's
    assert [(s.samples, s.fetches, s.data_wait_s, s.other_s) for s in script.steps] == [
        (8, 1, 0.5, 1.0)
    ] * 4


def test_loaders_fetched_in_turn_both_count() -> None:
    script = Script()
    for key in ("photos", "drawings") * 3:
        script.fetch(key)
        script.forward()
        script.update()
    assert [s.samples for s in script.steps] == [8] * 6


def test_batches_that_the_script_keeps_and_uses_again_count() -> None:
    # GIVEN a loader that itertools.cycle asks for one pass only, beside one that goes on
    script = Script()
    for step in range(60):
        if step < 6:
            script.fetch("short")
        script.fetch("long")
        script.forward()
        script.update()
    # THEN no sample is lost, and from the first steps without a fetch on each step has its own
    samples = [s.samples for s in script.steps]
    assert sum(samples) == 60 * 8
    assert samples[6 + SILENT :] == [8] * (60 - 6 - SILENT)


def test_a_loop_that_pauses_its_fetches_now_and_then_keeps_nothing() -> None:
    script = Script()
    for step in range(60):
        if step < 20 or step % 2 == 0:
            script.fetch()
        script.forward()
        script.update()
    assert sum(s.samples for s in script.steps) == 40 * 8


def test_two_forwards_and_updates_on_one_batch_are_one_step() -> None:
    script = Script()
    for _ in range(5):
        script.fetch()
        for _ in range(2):
            script.forward()
            script.update()
    assert script.steps == [StepEnd(3.0 * n, 0.5, 0.0, 8, 1, 2.0, 0.5) for n in range(1, 6)]


@given(st.lists(st.sampled_from(["step", "fetch", "forward", "update", "settle"])))
@pytest.mark.parametrize("loader", [True, False])
def test_several_updates_a_step_end_at_once_where_they_do_if_summed_up(
    loader: bool, then: list[str]
) -> None:
    # GIVEN a loop of two updates a step, with and without a loader
    one, other = Script(), Script()
    for script in (one, other):
        for _ in range(6):
            for act in (*[script.fetch] * loader, script.forward, script.update, script.forward):
                act()
            script.update()
        assert script.loops[0].updates_per_step == (2 if loader else 1)
    # WHEN anything comes, and one of them sums up all along
    for act in then:
        for script in (one, other):
            if act == "late":
                script.flow.elsewhere.append(Fetch("train", 0.0, 0.1, 8, False, True))
            elif act == "settle":
                script.flow.settle()
            else:
                getattr(script, act)()
        other.flow.settle()
        # THEN steps end at the same updates
        assert one.flow.ended == other.flow.ended
    assert one.steps == other.steps


def test_batches_fetched_ahead_across_the_end_of_an_epoch_all_count() -> None:
    script = Script()
    for _ in range(4):
        script.fetch()
        # WHEN the iterator has come to its end, a new one goes on
        script.flow.feed(Fetch("train", script.now, script.now, 0, True, True, True))
        script.step()
    # THEN
    assert [(s.samples, s.fetches) for s in script.steps] == [(16, 2)] * 4


def test_optimizer_made_anew_ends_steps_from_its_first_update_on() -> None:
    script = Script()
    for _ in range(4):
        script.step()
    # WHEN the next phase makes another optimizer
    for late in (True, False, False):
        script.fetch()
        script.flow.feed(Update("second", script.now, script.now, script.now, late))
    # THEN
    assert [s.samples for s in script.steps] == [8] * 7


def test_other_optimizer_takes_over_where_the_first_is_used_no_more() -> None:
    # GIVEN two optimizers made at the start, of which only one was seen so far
    script = Script()
    for _ in range(4):
        script.step()
    # WHEN from now on only the other one is stepped
    for _ in range(UPDATES_ASTRAY + 4):
        script.fetch()
        script.flow.feed(Update("second", script.now, script.now, script.now))
    # THEN no sample is lost, and steps go on
    assert [s.samples for s in script.steps[4:]] == [8 * (UPDATES_ASTRAY + 1), 8, 8, 8]


def test_batches_that_another_thread_fetched_are_brought_in_with_the_next_update() -> None:
    # GIVEN a thread that is up to two batches ahead, also while the loop is being told
    script = Script()
    told: list[Loop] = []

    def fetch_elsewhere() -> None:
        script.flow.feed(Fetch("train", script.now, script.now + 0.5, 8, False, True))

    def known(loop: Loop) -> None:
        told.append(loop)
        fetch_elsewhere()

    script.start(known)
    fetch_elsewhere()
    # WHEN
    for _ in range(6):
        fetch_elsewhere()
        script.forward()
        script.update()
    # THEN each batch counts once, and the step that told the loop ended at once
    assert [s.samples for s in script.steps] == [16, 8, 8, 8, 16, 8]
    assert script.ended_at == [4, 5, 6]
    assert len(told) == 1


def test_another_thread_does_not_end_a_validation() -> None:
    script = Script()
    for _ in range(4):
        script.step()
    # WHEN batches of the next epoch are fetched meanwhile
    script.fetch("val", grad=False)
    script.flow.feed(Fetch("train", script.now, script.now, 8, False, True))
    script.forward(grad=False)
    script.step()
    # THEN all of it, 0.5 s of loading and 1 s of inference, is told apart
    assert (script.steps[-1].other_s, script.steps[-1].samples) == (1.5, 16)


def test_iterator_made_by_another_thread_throws_nothing_away() -> None:
    script = Script()
    for _ in range(4):
        script.flow.feed(Fetch("train", script.now, script.now, 0, True, True, True))
        # WHEN a thread fetches a batch, starts the loader again and goes on
        for started in (False, True, False):
            samples = 0 if started else 8
            script.flow.feed(
                Fetch("train", script.now, script.now, samples, False, True, started, started)
            )
        script.forward()
        script.update()
    assert [s.samples for s in script.steps] == [16] * 4


def test_steps_end_at_once_and_are_told_when_settled() -> None:
    script = Script()
    for _ in range(10):
        script.step()
    assert script.ended_at == [4, 5, 6, 7, 8, 9, 10]
    assert len(script.told) == 4
    assert [step.samples for step in script.steps] == [8] * 10


def test_the_host_s_times_of_a_step() -> None:
    # GIVEN a script that does something of its own for 2 s after each update
    script = Script()
    for _ in range(4):
        script.step()
        script.now += 2.0
    # WHEN it validates as well
    script.fetch("val", grad=False)
    script.forward(grad=False)
    script.step()
    script.flow.settle()
    # THEN its own time between steps is told apart from what is no training
    assert script.told[3].host == HostTimes(9.25, 2.0, 11.75, 12.75, 13.0)
    assert script.told[4].host == HostTimes(13.0, 2.0, 17.0, 18.0, 18.25)


def test_forward_and_backward_inside_the_update_are_no_part_of_it() -> None:
    script = Script()
    for _ in range(6):
        script.fetch()
        began = script.now
        script.forward()
        script.now += 0.25
        script.flow.feed(Update("opt", began, script.now, script.now))
    assert [(s.forward_s, s.update_s) for s in script.steps] == [(1.0, 0.25)] * 6
