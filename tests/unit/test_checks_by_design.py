"""What looks like a fault and is meant: endless passes, repeated augmentation, chance, design."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from ladder import Times, launched
from test_checks_rules import LOADER, launch, ranks, with_loaders

from sfbench.checks import accumulation_sync, data_sharding, independent_copies, learning_rate
from sfbench.checks.facts import sweep_facts
from sfbench.common.schema import Interval, Point, Share, TimeShare
from sfbench.probe.recording.content import batch_prints, dataset_digest
from sfbench.probe.replaying.batch import samples_in, tensors
from sfbench.probe.replaying.ring import Ring
from sfbench.protocol.evidence import Loader, Model, Optimizer

SIZE = 640
STEP = Interval(value=0.2, low=0.2, high=0.2)


def dealt(order: list[int], rank: int, world: int, seen: int, **changes: object) -> Loader:
    """A rank's part of an order, as DistributedSampler deals it; contents are all different."""
    numbers = tuple(order[rank::world])[:seen]
    contents = tuple(1000 * rank + 100_000 * place + n for place, n in enumerate(numbers))
    labels = tuple(n % 10 for n in numbers)
    facts = replace(LOADER, dataset_size=SIZE, **changes)
    return replace(facts, indices=numbers, contents=contents, labels=labels)


def same_contents(loader: Loader) -> Loader:
    return replace(loader, contents=loader.indices)


def shuffled(seed: int) -> list[int]:
    return np.random.default_rng(seed).permutation(SIZE).tolist()


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("seen", [1024, 400, 100])
def test_an_endless_pass_is_compared_within_its_first_epoch(world: int, seen: int) -> None:
    # GIVEN one pass that goes over many epochs, each dealt out correctly
    epochs = [shuffled(seed) for seed in range(20)]
    loaders = []
    for rank in range(world):
        numbers = tuple(n for order in epochs for n in order[rank::world])[:seen]
        facts = replace(LOADER, dataset_size=SIZE, sampler="Endless")
        loaders.append(replace(facts, indices=numbers, contents=numbers))
    # THEN shares of different epochs are not taken for common samples
    assert data_sharding.check(with_loaders(*loaders)).status == "pass"


def test_an_endless_pass_that_is_not_dealt_out_is_found() -> None:
    # GIVEN each rank going endlessly through all samples, in an order of its own
    loaders = []
    for rank in range(2):
        numbers = tuple(n for seed in range(3) for n in shuffled(10 * rank + seed))[:1024]
        loaders.append(replace(LOADER, dataset_size=SIZE, indices=numbers, contents=numbers))

    assert data_sharding.check(with_loaders(*loaders)).status == "fail"


@pytest.mark.parametrize(("world", "times"), [(2, 3), (4, 3), (8, 3), (8, 5), (3, 2), (3, 4)])
def test_repeated_augmentation_is_named(world: int, times: int) -> None:
    # GIVEN a sampler that gives each sample several times in turn, dealt out over the ranks
    order = [n for n in shuffled(1) for _ in range(times)]
    loaders = [
        dealt(order, rank, world, SIZE // world, sampler="Repeated") for rank in range(world)
    ]
    # THEN it is a note, and no fault
    got = data_sharding.check(with_loaders(*loaders))
    assert got.status == "pass"
    assert f"Repeated gives each sample {times} times" in got.evidence
    assert "repeated augmentation" in got.evidence


def test_repeated_samples_that_nothing_augments_are_a_fault() -> None:
    order = [n for n in shuffled(1) for _ in range(3)]
    loaders = [same_contents(dealt(order, rank, 2, 320, sampler="Repeated")) for rank in range(2)]

    assert data_sharding.check(with_loaders(*loaders)).status == "fail"


@pytest.mark.parametrize(("sampler", "status"), [("RASampler", "pass"), ("OwnSampler", "fail")])
def test_as_many_repeats_as_ranks_are_told_by_the_name(sampler: str, status: str) -> None:
    # GIVEN two ranks with the same order: also what a sampler without ranks would do
    order = [n for n in shuffled(1) for _ in range(2)]
    loaders = [dealt(order, rank, 2, 320, sampler=sampler) for rank in range(2)]

    assert data_sharding.check(with_loaders(*loaders)).status == status


def test_samples_drawn_with_replacement_are_common_by_chance() -> None:
    draws = np.random.default_rng(0).integers(0, SIZE, (2, 400)).tolist()
    loaders = [
        replace(LOADER, dataset_size=SIZE, indices=tuple(d), contents=tuple(d)) for d in draws
    ]

    got = data_sharding.check(with_loaders(*loaders))
    assert got.status == "pass"
    assert "with replacement" in got.evidence


def test_samples_drawn_alike_are_a_fault_with_replacement_too() -> None:
    numbers = tuple(np.random.default_rng(0).integers(0, SIZE, 400).tolist())
    other = tuple(n + 1000 for n in numbers)
    labels = tuple(n % 10 for n in numbers)
    loader = replace(LOADER, dataset_size=SIZE, indices=numbers, contents=numbers, labels=labels)

    got = data_sharding.check(with_loaders(loader, replace(loader, contents=other)))
    assert got.status == "fail"


@pytest.mark.parametrize("weights", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_are_said_once(weights: float) -> None:
    got = independent_copies.check(launch(*ranks(weights=weights)))

    assert got.status == "not-applicable"
    assert "not finite" in got.evidence
    assert "differ" not in got.evidence


@pytest.mark.parametrize("tried", [-0.002, 0.0, None])
def test_no_negative_cost_is_printed(tried: float | None) -> None:
    model = Model(line="train.py:3", backwards=(4, 4), synced=(4, 4))
    facts = launch(*ranks(models=(model,), sync_cost_s=tried), communication_s=-0.001)

    got = accumulation_sync.check(facts)
    assert got.status == "fail"
    assert "too little to measure" in got.evidence
    assert "-" not in got.evidence.replace("micro-step", "")


@pytest.mark.parametrize(("by", "status"), [("", "warn"), ("accelerate", "pass")])
def test_a_schedule_that_a_library_steps_once_per_rank_is_meant(by: str, status: str) -> None:
    optimizer = Optimizer(
        name="SGD",
        rate=0.1,
        scheduler="LambdaLR",
        scheduler_steps=(2, 2, 2),
        scheduler_stepped_by=by,
    )

    got = learning_rate.check([launch(*ranks(optimizers=(optimizer,)))])
    assert got.status == status
    assert "LambdaLR steps 2 times per update" in got.evidence
    assert (by in got.evidence) is True


class Raises:
    @property
    def __dict__(self):  # type: ignore[override]
        raise RuntimeError("no such thing")


class Slotted:
    __slots__ = ("unset", "x")

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


class Kept:
    """A batch object that knows itself, as graph batches do."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.own, self.kind = x, self, Loader

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")

    __hash__ = None  # type: ignore[assignment]


ROWS = torch.arange(12.0).reshape(4, 3)
ODD = {
    "a class": Loader,
    "raises": Raises(),
    "slots": Slotted(ROWS),
    "knows itself": Kept(ROWS),
    "sparse": ROWS.to_sparse(),
    "nested": torch.nested.nested_tensor([ROWS, ROWS[:2]]),
    "meta": ROWS.to("meta"),
    "words": np.array(["a", "b"]),
    "reversed": np.arange(4)[::-1],
    "big endian": np.arange(4, dtype=">i4"),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "complex": ROWS.to(torch.complex64),
    "a lock": __import__("threading").Lock(),
    "a generator": (n for n in range(3)),
    "scalar": torch.tensor(1.0),
    "empty": torch.empty(0, 3),
}


@pytest.mark.parametrize("name", ODD)
def test_no_batch_object_is_too_odd(name: str) -> None:
    # GIVEN a batch that holds four rows and something odd
    batch = {"rows": ROWS, "odd": ODD[name]}
    ring = Ring()
    # WHEN the probe looks at it and keeps it THEN nothing is raised, and the rows are there
    with torch.inference_mode(mode=name == "scalar"):
        assert samples_in(batch) == 4
        assert any(t is ROWS for t in tensors(batch))
        batch_prints(batch, 4)
        dataset_digest(batch)
        ring.keep("loader", batch, 4)
    for _ in range(2):
        kept, count = ring.take("loader")
        assert count == 4
        assert torch.equal(kept["rows"], ROWS)
        assert kept["rows"] is not ROWS


def test_a_kept_object_is_one_object() -> None:
    # GIVEN a batch object that refers to itself
    ring = Ring()
    ring.keep("loader", Kept(ROWS.clone()), 4)
    # WHEN it is handed out THEN its twin refers to itself, and what a script changes is put back
    twin, _ = ring.take("loader")
    assert twin.own is twin
    twin.x += 1
    again, _ = ring.take("loader")
    assert torch.equal(again.x, ROWS)


def test_a_share_that_is_no_figure_prices_nothing() -> None:
    # GIVEN communication that is known to 2 points, and to 30
    made = launched(0, Times(cached=[0.1, 0.1]))
    facts = [
        sweep_facts((made,), (Point(devices=2, status="ok", step_s=STEP, time_share=shares),))[0]
        for shares in (_shares(0.02), _shares(0.3))
    ]
    # THEN only the first is a cost: 10 % of 0.2 s
    assert [one.communication_s for one in facts] == [pytest.approx(0.02), None]


def _shares(half: float) -> TimeShare:
    known = Share(value=0.1, low=0.1 - half, high=0.1 + half)
    names = ("compute", "host", "straggler", "jitter", "communication", "data")
    return TimeShare(**dict.fromkeys(names, known))
