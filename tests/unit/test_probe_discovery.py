"""The step is found in the events of the loops that people write."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfbench.probe.hooks.events import Event, Fetch, Forward, Update
from sfbench.probe.loop.discovery import enough, find_loop

_TICK = itertools.count()


def fetch(key: str = "train", samples: int = 8, grad: bool = True) -> Fetch:
    return Fetch(key, 0.0, 0.001, samples, True, grad)


def forward(key: str = "model", samples: int = 8, grad: bool = True) -> Forward:
    return Forward(key, 0.0, 0.001, samples, grad)


def update(key: str = "opt") -> Update:
    return Update(key, 0.0, 0.001, next(_TICK))


def test_plain_loop() -> None:
    # GIVEN one fetch, one forward and one update per step
    events: list[Event] = [fetch(), forward(), update()] * 4
    # WHEN / THEN
    loop = find_loop(events)
    assert (loop.anchor, loop.updates_per_step, loop.primary) == ("opt", 1, "train")
    assert loop.loaders == {"train"}


def test_accumulation_is_one_step_per_update() -> None:
    events: list[Event] = [*[fetch(), forward()] * 4, update()] * 4
    assert find_loop(events).updates_per_step == 1


def test_one_optimizer_stepped_twice_per_batch() -> None:
    events: list[Event] = [fetch(), forward(), update(), update()] * 4
    assert find_loop(events).updates_per_step == 2


@pytest.mark.parametrize("times", [2, 3, 7])
def test_several_forwards_and_updates_on_each_batch_are_one_step(times: int) -> None:
    # GIVEN each batch trained on several times: climb and descend, or inner epochs
    events: list[Event] = [fetch(), *[forward(), update()] * times]
    # WHEN / THEN: the step is found once four batches have been used
    assert not enough(events * 3, optimizers=1)
    assert enough(events * 4, optimizers=1)
    loop = find_loop(events * 4)
    assert (loop.updates_per_step, loop.primary) == (times, "train")


def test_batch_looked_at_before_a_loop_of_its_own_batches_is_no_part_of_it() -> None:
    events: list[Event] = [fetch(), *[forward(), update()] * 96]
    assert enough(events, optimizers=1)
    loop = find_loop(events)
    assert (loop.updates_per_step, loop.primary, loop.model) == (1, None, "model")


def test_one_batch_ahead_is_one_update_per_step() -> None:
    # GIVEN an epoch of 4 steps whose batches are fetched one step before they are used
    first: list[Event] = [fetch(), fetch(), forward(), update()]
    between: list[Event] = [fetch(), forward(), update()]
    last: list[Event] = [forward(), update()]
    loop = find_loop([*first, *between * 2, *last])
    assert (loop.updates_per_step, loop.primary) == (1, "train")


def test_two_optimizers_per_batch_end_with_the_later_one() -> None:
    events: list[Event] = [fetch(), forward("d"), update("d"), forward("g"), update("g")] * 12
    assert find_loop(events).anchor == "g"


def test_generator_trained_once_per_five_critic_updates() -> None:
    critic: list[Event] = [fetch(), forward("d"), update("d")]
    events: list[Event] = [*critic * 5, forward("g"), update("g")] * 3
    loop = find_loop(events)
    assert (loop.anchor, loop.updates_per_step) == ("g", 1)


def test_validation_loader_inside_the_loop_is_no_training_loader() -> None:
    step: list[Event] = [fetch(), forward(), update()]
    validation: list[Event] = [fetch("val", grad=False), forward(grad=False)] * 3
    assert find_loop([*step * 4, *validation, *step * 4]).loaders == {"train"}


def test_two_loaders_zipped_are_both_training_and_the_first_counts() -> None:
    events: list[Event] = [fetch("a", 4), fetch("b", 16), forward(), update()] * 4
    loop = find_loop(events)
    assert loop.loaders == {"a", "b"}
    assert loop.primary == "a"


def test_without_a_loader_the_model_input_counts() -> None:
    events: list[Event] = [forward(), update()] * 4
    loop = find_loop(events)
    assert (loop.primary, loop.model) == (None, "model")


def test_without_loader_and_model_samples_are_unknown() -> None:
    loop = find_loop([update()] * 4)
    assert not loop.samples_known


def test_no_update_is_no_loop() -> None:
    with pytest.raises(ValueError, match="no optimizer update"):
        find_loop([fetch(), forward()])


@given(st.integers(1, 30), st.booleans())
def test_enough_counts_groups(groups: int, several: bool) -> None:
    events: list[Event] = [fetch(), forward(), update()] * groups
    assert enough(events, optimizers=2 if several else 1) == (groups >= (12 if several else 4))
