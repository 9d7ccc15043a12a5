"""Which samples count, where a loader and the model tell different ones."""

from __future__ import annotations

import pytest

from sfbench.probe.hooks.events import Event, Fetch, Forward, Update
from sfbench.probe.loop.crosscheck import cross_check
from sfbench.probe.loop.discovery import find_loop

LOADER, MODEL, OPTIMIZER = ("data", "Sampler", 8), 1, 2


def fetch(samples: int, *, started: bool = False) -> Fetch:
    return Fetch(LOADER, 0.0, 0.0, samples, True, True, started)


def forward(samples: int, key: int = MODEL) -> Forward:
    return Forward(key, 0.0, 0.0, samples, True)


UPDATE = Update(OPTIMIZER, 0.0, 0.0, None)


def step(fetches: list[int], forwards: list[int]) -> list[Event]:
    return [*map(fetch, fetches), *map(forward, forwards), UPDATE]


def checked(steps: list[list[Event]], *, by_index: bool, world_size: int = 2):
    events = [fetch(0, started=True), *(event for one in steps for event in one)]
    found = cross_check(find_loop(events), events, by_index=by_index, world_size=world_size)
    return found.loop.trained, bool(found.note)


FETCHED, TRAINED, TOLD = (False, False), (True, False), (True, True)


@pytest.mark.parametrize(
    ("fetches", "forwards", "by_index", "expected"),
    [
        pytest.param([8], [8], True, FETCHED, id="ordinary"),
        pytest.param([8], [8], False, FETCHED, id="ordinary stream"),
        pytest.param([8, 8, 8], [8, 8, 8], True, FETCHED, id="accumulated"),
        pytest.param([64] * 16, [16], False, TOLD, id="single samples, stacked"),
        pytest.param([1] * 16, [16], False, FETCHED, id="single samples that count 1 each"),
        pytest.param([128], [8], False, TOLD, id="identity collate"),
        pytest.param([8], [16], True, FETCHED, id="two views at once, by index"),
        pytest.param([8], [16], False, FETCHED, id="two views at once"),
        pytest.param([8], [8, 8], False, FETCHED, id="two views in turn"),
        pytest.param([16], [4096], True, FETCHED, id="flattened"),
        pytest.param([16], [5], True, FETCHED, id="packed or transposed"),
        pytest.param([32], [16], True, TOLD, id="one rank reads for two"),
        pytest.param([16, 16], [16], True, TOLD, id="one rank reads for two, in batches"),
        pytest.param([8], [0], False, FETCHED, id="a model without a tensor"),
    ],
)
def test_every_step_alike(
    fetches: list[int], forwards: list[int], by_index: bool, expected: tuple[bool, bool]
) -> None:
    assert checked([step(fetches, forwards)] * 5, by_index=by_index) == expected


@pytest.mark.parametrize("by_index", [True, False])
def test_one_batch_ahead_counts_where_it_is_trained_on(by_index: bool) -> None:
    steps = [step([8, 8], [8]), *[step([8], [8])] * 4, step([], [8])]

    assert checked(steps, by_index=by_index) == TRAINED


def test_chunks_that_are_cut_anew_count_as_they_are_cut() -> None:
    steps = [step(chunks, [8]) for chunks in ([3, 6], [11], [2, 10], [3], [6, 11])]

    assert checked(steps, by_index=False) == TOLD


def test_a_smaller_last_batch_agrees() -> None:
    steps = [step([8], [8]), step([8], [8]), step([5], [5])] * 2

    assert checked(steps, by_index=True) == FETCHED


@pytest.mark.parametrize("looked_at", [1, 4])
def test_batches_that_were_only_looked_at_are_no_sign(looked_at: int) -> None:
    first = [*[fetch(8)] * looked_at, fetch(0, started=True), *step([8], [8])]

    assert checked([first, *[step([8], [8])] * 4], by_index=True) == FETCHED


def test_the_model_that_sees_each_sample_fewest_times_tells() -> None:
    # GIVEN a discriminator that sees real and made samples, and a generator
    one = [fetch(8), forward(8), forward(16, key=7), UPDATE]

    assert checked([one] * 5, by_index=False) == FETCHED


def test_without_a_wrapped_model_the_loader_counts() -> None:
    assert checked([step([8], [])] * 5, by_index=True) == FETCHED
