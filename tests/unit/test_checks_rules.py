"""The rules of the correctness checks, on evidence made by hand."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sfbench.checks import (
    CHECKS,
    accumulation_sync,
    batch_meaning,
    checkpoint_keys,
    checkpoint_writers,
    data_sharding,
    download_race,
    epoch_shuffle,
    independent_copies,
    learning_rate,
    run_checks,
    skipped_updates,
    split_leak,
    threads,
    uneven_inputs,
    unused_parameters,
)
from sfbench.checks.facts import Failure, LaunchFacts, worst
from sfbench.common.schema import CheckResult
from sfbench.protocol.evidence import (
    Epoch,
    Loader,
    Model,
    Optimizer,
    RankEvidence,
    Read,
    Save,
    Split,
    Written,
)

RANK = RankEvidence(rank=0, host="here", threads=1, peers=(0, 1), updates=8, weights=1.0)
LOADER = Loader(
    line="train.py:9",
    trains=True,
    length=4,
    dataset="Rows",
    dataset_size=32,
    dataset_digest=5,
    sampler="DistributedSampler",
    takes_all=False,
    shuffles=True,
    has_set_epoch=True,
)


def ranks(count: int = 2, **changes: object) -> tuple[RankEvidence, ...]:
    """As many alike ranks."""
    peers = tuple(range(count))
    return tuple(replace(RANK, rank=rank, peers=peers, **changes) for rank in peers)


def launch(*evidence: RankEvidence, devices: int = 2, **changes: object) -> LaunchFacts:
    return LaunchFacts(devices=devices, ranks=evidence, **changes)


def with_loaders(*loaders: Loader) -> LaunchFacts:
    """One loader per rank."""
    return launch(
        *(
            replace(rank, loaders=(loader,))
            for rank, loader in zip(ranks(len(loaders)), loaders, strict=True)
        ),
        devices=len(loaders),
    )


def epoch(order: tuple[int, ...] = (), batches: int = 4, ended: bool = True, **changes: object):
    return Epoch(order=order, batches=batches, ended=ended, **changes)


# -- all ------------------------------------------------------------------------------------------


def test_every_check_answers_once_and_in_order() -> None:
    results = run_checks([launch(*ranks())])

    assert tuple(r.id for r in results) == CHECKS
    assert len(set(CHECKS)) == 14


def test_one_device_has_nothing_to_compare() -> None:
    results = run_checks([launch(*ranks(1), devices=1)])

    by_id = {r.id: r.status for r in results}
    assert by_id["independent-copies"] == by_id["data-sharding"] == "not-applicable"
    assert by_id["threads"] == "pass"


def test_nothing_seen_is_no_failure() -> None:
    results = run_checks([launch()])

    assert {r.status for r in results} == {"not-applicable"}


def test_the_worst_launch_counts() -> None:
    good, bad = (CheckResult(id="x", status=s, evidence=s) for s in ("pass", "fail"))

    assert worst([good, bad, good]) is bad
    assert worst([good, replace(good, evidence="later")]) is good


def test_many_ranks_are_compared_with_their_neighbours() -> None:
    facts = launch(*ranks(20), devices=20)

    assert [(a.rank, b.rank) for a, b in facts.peers()] == [(r, r + 1) for r in range(19)]
    assert len(list(launch(*ranks(4)).peers())) == 6


# -- independent-copies ---------------------------------------------------------------------------


def test_a_refusal_for_copies_is_told_as_it_is() -> None:
    failure = Failure(kind="not-wrapped", rank=1, message="copies")

    got = independent_copies.check(launch(failure=failure))

    assert got == CheckResult(id="independent-copies", status="fail", evidence="copies")


@pytest.mark.parametrize(
    ("a", "b", "status"),
    [
        (1.0, 1.0, "pass"),
        (1.0, 2.0, "fail"),
        (math.nan, math.nan, "not-applicable"),
        (1.0, math.nan, "fail"),
    ],
)
def test_replicas_are_compared_by_their_weights(a: float, b: float, status: str) -> None:
    first, second = ranks()

    got = independent_copies.check(launch(replace(first, weights=a), replace(second, weights=b)))

    assert got.status == status


def test_a_communication_hook_of_the_script_may_want_replicas_apart() -> None:
    first, second = ranks(models=(Model(line="", own_hook=True),))

    assert independent_copies.check(launch(first, replace(second, weights=2.0))).status == "pass"


def test_ranks_of_other_groups_are_not_compared() -> None:
    first, second = ranks()

    got = independent_copies.check(
        launch(replace(first, peers=(0,)), replace(second, peers=(1,), weights=2.0))
    )

    assert got.status == "not-applicable"


@pytest.mark.parametrize(("exchanges", "status"), [(False, "fail"), (True, "pass")])
def test_what_stays_outside_ddp_may_be_averaged_otherwise(exchanges: bool, status: str) -> None:
    first, second = ranks(weights_outside=1.0, exchanges_outside=exchanges)

    got = independent_copies.check(launch(first, replace(second, weights_outside=2.0)))

    assert got.status == status


# -- data-sharding --------------------------------------------------------------------------------


def samples(indices: tuple[int, ...], contents: tuple[int, ...], **changes: object) -> Loader:
    return replace(LOADER, indices=indices, contents=contents, **changes)


def test_the_same_contents_in_the_same_order_are_the_same_samples() -> None:
    # GIVEN other indices, but what they stand for is picked inside the dataset
    a = samples((0, 2, 4, 6), (70, 71, 72, 73))
    b = samples((1, 3, 5, 7), (70, 71, 72, 73))

    assert data_sharding.check(with_loaders(a, b)).status == "fail"


def test_constant_contents_tell_nothing() -> None:
    a = samples((0, 2, 4, 6), (7, 7, 7, 7))
    b = samples((1, 3, 5, 7), (7, 7, 7, 7))

    assert data_sharding.check(with_loaders(a, b)).status == "pass"


def test_contents_that_repeat_under_other_indices_are_no_fault() -> None:
    # GIVEN a dataset that goes over its files twice, shared out by index
    a = samples((0, 2, 5, 7), (70, 72, 71, 73))
    b = samples((1, 3, 4, 6), (71, 73, 70, 72))

    assert data_sharding.check(with_loaders(a, b)).status == "pass"


def test_common_indices_of_one_dataset_are_the_same_samples() -> None:
    a = samples((3, 1, 2, 0), (73, 71, 72, 70))
    b = samples((0, 1, 2, 3), (70, 71, 72, 73))

    got = data_sharding.check(with_loaders(a, b))

    assert got.status == "fail"
    assert "4 of the same samples of Rows (train.py:9)" in got.evidence


def test_labels_tell_augmented_samples_from_other_ones() -> None:
    a = samples((0, 1, 2, 3), (1, 2, 3, 4), labels=(60, 61, 62, 63))
    same = samples((3, 2, 1, 0), (5, 6, 7, 8), labels=(63, 62, 61, 60))
    other = samples((3, 2, 1, 0), (5, 6, 7, 8), labels=(50, 51, 52, 53))

    assert data_sharding.check(with_loaders(a, same)).status == "fail"
    assert data_sharding.check(with_loaders(a, other)).status == "pass"


@pytest.mark.parametrize(("digest", "status"), [(5, "warn"), (6, "pass")])
def test_without_labels_equal_datasets_leave_a_doubt(digest: int, status: str) -> None:
    a = samples((0, 1, 2, 3), (1, 2, 3, 4))
    b = samples((3, 2, 1, 0), (5, 6, 7, 8), dataset_digest=digest)

    assert data_sharding.check(with_loaders(a, b)).status == status


def test_every_rank_going_through_everything_is_a_fault_before_samples_meet() -> None:
    many = tuple(range(100, 108))
    a = samples(many, tuple(range(8)), takes_all=True, dataset_size=10**6)
    b = samples(tuple(i + 50 for i in many), tuple(range(20, 28)), takes_all=True,
                dataset_size=10**6)  # fmt: skip

    got = data_sharding.check(with_loaders(a, b))

    assert (got.status, "all 1000000 samples" in got.evidence) == ("fail", True)
    assert data_sharding.check(with_loaders(a, replace(b, dataset_digest=9))).status == "pass"


def test_padding_of_the_last_batch_is_no_fault() -> None:
    # GIVEN the sampler filled up rank 1's share with one sample of rank 0
    a = samples(tuple(range(0, 40, 2)), tuple(range(0, 40, 2)))
    b = samples((*range(1, 39, 2), 0), (*range(1, 39, 2), 0))

    assert data_sharding.check(with_loaders(a, b)).status == "pass"


def test_a_stream_is_compared_by_contents() -> None:
    a = samples((), (1, 2, 3, 4))
    shuffled = samples((), (3, 1, 4, 9))
    other = samples((), (5, 6, 7, 8))

    assert data_sharding.check(with_loaders(a, shuffled)).status == "fail"
    assert data_sharding.check(with_loaders(a, other)).status == "pass"


# -- epoch-shuffle --------------------------------------------------------------------------------

MIXED, OTHER = (5, 1, 4, 2, 0, 3), (2, 0, 5, 3, 1, 4)


@pytest.mark.parametrize(
    ("epochs", "changes", "status"),
    [
        ((epoch(MIXED), epoch(MIXED)), {}, "fail"),
        ((epoch(MIXED), epoch(OTHER)), {}, "pass"),
        ((epoch(MIXED), epoch(MIXED), epoch(OTHER)), {}, "pass"),
        ((epoch(MIXED),), {}, "not-applicable"),
        ((epoch(MIXED), epoch(MIXED, batches=1, ended=False)), {}, "not-applicable"),
        ((epoch(MIXED[:4]), epoch(MIXED[:4])), {}, "not-applicable"),
        ((epoch(tuple(range(0, 12, 2))),) * 2, {}, "pass"),
        ((epoch(MIXED), epoch(MIXED)), {"shuffles": None, "has_set_epoch": False}, "warn"),
        ((epoch(), epoch()), {}, "not-applicable"),
    ],
)
def test_order_of_epochs(epochs: tuple[Epoch, ...], changes: dict[str, object], status: str):
    loader = replace(LOADER, epochs=epochs, **changes)

    assert epoch_shuffle.check(with_loaders(loader, loader)).status == status


# -- split-leak -----------------------------------------------------------------------------------


def parts(*sets: set[int]) -> tuple[Split, ...]:
    return tuple(
        Split(line="train.py:5", parent=0, size=len(s), sketch=tuple(sorted(s))) for s in sets
    )


@pytest.mark.parametrize(
    ("other", "status"),
    [
        (({0, 1, 2, 3, 4, 5}, {6, 7}), "pass"),
        (({2, 3, 4, 5, 6, 7}, {0, 1}), "fail"),
        (({10, 11, 12, 13, 14, 15}, {16, 17}), "pass"),
        (({2, 3, 4, 5, 6, 7}, {2, 3}), "not-applicable"),
    ],
    ids=["alike", "otherwise", "own shards", "no split"],
)
def test_splits_are_compared_by_their_members(other: tuple[set[int], set[int]], status: str):
    first, second = ranks()

    got = split_leak.check(
        launch(
            replace(first, splits=parts({0, 1, 2, 3, 4, 5}, {6, 7})),
            replace(second, splits=parts(*other)),
        )
    )

    assert got.status == status
    assert status != "fail" or "About 100% of the 2 samples" in got.evidence


def test_overlap_is_judged_as_far_as_both_sketches_reach() -> None:
    # GIVEN a large set that shows its members up to 30 only, and a small one shown whole
    large = Split(line="", parent=0, size=1000, sketch=(1, 10, 20, 30))
    small = Split(line="", parent=0, size=4, sketch=(10, 25, 40, 50))

    # THEN two of the small one's members can be looked up, and one is there
    assert split_leak.overlap(small, large) == 0.5


# -- uneven-inputs --------------------------------------------------------------------------------


def lengths(*counts: int, **changes: object) -> LaunchFacts:
    return with_loaders(*(replace(LOADER, length=n, **changes) for n in counts))


def test_ranks_that_parted_are_told_as_they_were_seen() -> None:
    failure = Failure(kind="ranks-disagree", rank=1, message="rank 1 stopped at step 5")

    assert uneven_inputs.check(launch(failure=failure)).evidence == "rank 1 stopped at step 5"


def test_lengths_alone_tell() -> None:
    got = uneven_inputs.check(lengths(6, 5))

    assert got.status == "fail"
    assert got.evidence.startswith("Rank 1 has 5 batches per epoch, rank 0 has 6 (train.py:9)")
    assert uneven_inputs.check(lengths(6, 6)).status == "pass"


@pytest.mark.parametrize(
    ("a", "b", "status"),
    [
        (epoch(batches=6), epoch(batches=5), "fail"),
        (epoch(batches=5), epoch(batches=5), "pass"),
        (epoch(batches=6, cycled=True), epoch(batches=5), "warn"),
    ],
)
def test_epochs_that_ended_tell(a: Epoch, b: Epoch, status: str) -> None:
    loaders = (replace(LOADER, length=None, epochs=(e,)) for e in (a, b))

    assert uneven_inputs.check(with_loaders(*loaders)).status == status


def test_a_loop_left_at_the_same_batch_is_even() -> None:
    left = (epoch(batches=3, ended=False), epoch(batches=1, ended=False))

    assert uneven_inputs.check(lengths(6, 5, epochs=left)).status == "pass"


def test_join_and_a_minimum_over_ranks_are_remedies() -> None:
    uneven = lengths(6, 5)
    joined = replace(uneven, ranks=tuple(replace(r, joins=True) for r in uneven.ranks))
    least = replace(uneven, ranks=tuple(replace(r, takes_minimum=True) for r in uneven.ranks))

    assert uneven_inputs.check(joined).status == "pass"
    assert uneven_inputs.check(least).status == "warn"


# -- files ----------------------------------------------------------------------------------------

FILE = Written(path="/data/run/last.pt", line="train.py:30", sync_point=4, setup=False)


def test_keys_are_named_with_their_place() -> None:
    save = Save(path="/a/b/c/last.pt", line="train.py:30", keys=("module.weight",), count=2)

    got = checkpoint_keys.check(launch(replace(RANK, saves=(save,), states_saved=1)))

    assert got.status == "fail"
    assert got.evidence.startswith("2 keys of c/last.pt name a wrapper, as module.weight (train")
    assert checkpoint_keys.check(launch(replace(RANK, states_saved=1))).status == "pass"


@pytest.mark.parametrize(
    ("mine", "theirs", "status"),
    [
        (FILE, FILE, "fail"),
        (FILE, replace(FILE, sync_point=5), "pass"),
        (FILE, replace(FILE, path="/data/run/rank1.pt"), "pass"),
        (replace(FILE, size_bytes=0), replace(FILE, size_bytes=0), "pass"),
        (replace(FILE, size_bytes=0, saved=True), FILE, "fail"),
    ],
)
def test_writers_of_one_path(mine: Written, theirs: Written, status: str) -> None:
    first, second = ranks()

    facts = launch(replace(first, written=(mine,)), replace(second, written=(theirs,)))

    assert checkpoint_writers.check(facts).status == status


def test_hosts_have_their_own_files() -> None:
    first, second = ranks(written=(FILE,))

    assert checkpoint_writers.check(launch(first, replace(second, host="there"))).status == "pass"


DATA = Written(path="/data/rows.npy", line="train.py:3", sync_point=1, setup=True, size_bytes=8,
               modified_s=100.0)  # fmt: skip


def look(**changes: object) -> Read:
    values = {"path": "/data/rows.npy", "line": "train.py:7", "at_s": 101.0, "sync_point": 1}
    return Read(**{**values, "found": True, "waited": False, **changes})


@pytest.mark.parametrize(
    ("read", "status"),
    [
        (look(sync_point=2), "pass"),
        (look(at_s=99.0), "fail"),
        (look(at_s=99.0, waited=True), "fail"),
        (look(), "fail"),
        (look(waited=True), "pass"),
        (look(at_s=99.0, found=False), "fail"),
        (look(at_s=99.0, found=False, waited=True), "pass"),
        (look(path="/data", at_s=99.0), "pass"),
        (look(path="/other", at_s=99.0), "pass"),
    ],
)
def test_data_is_read_when_it_is_complete(read: Read, status: str) -> None:
    first, second = ranks()

    got = download_race.check(
        launch(replace(first, written=(DATA,)), replace(second, reads=(read,)))
    )

    assert got.status == status


def test_a_folder_of_many_files_is_data_one_with_a_log_is_not() -> None:
    first, second = ranks()
    listing = replace(second, reads=(look(path="/data", at_s=99.0),))
    many = tuple(replace(DATA, path=f"/data/{i}.jpg") for i in range(4))

    def check(written: tuple[Written, ...]) -> str:
        return download_race.check(launch(replace(first, written=written), listing)).status

    assert (check(many), check(many[:3])) == ("fail", "pass")


def test_data_made_twice_is_no_matter_of_checkpoints() -> None:
    first, second = ranks(written=(DATA,))
    facts = launch(first, replace(second, reads=(look(sync_point=2),)))

    assert download_race.check(facts).status == "fail"
    assert checkpoint_writers.check(facts).status == "pass"


# -- steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backwards", "synced", "fetches", "status"),
    [
        ((1, 1), (1, 1), 1.0, "not-applicable"),
        ((4, 4), (1, 1), 4.0, "pass"),
        ((4, 4), (4, 4), 4.0, "fail"),
        ((2, 2), (2, 2), 1.0, "warn"),
        ((), (), 1.0, "not-applicable"),
    ],
)
def test_syncs_per_update(
    backwards: tuple[int, ...], synced: tuple[int, ...], fetches: float, status: str
) -> None:
    model = Model(line="train.py:12", backwards=backwards, synced=synced)

    got = accumulation_sync.check(launch(*ranks(models=(model,)), fetches_per_update=fetches))

    assert got.status == status


def test_superfluous_syncs_are_told_with_their_cost() -> None:
    model = Model(line="train.py:12", backwards=(4, 4), synced=(4, 4))
    tried = launch(*ranks(models=(model,), sync_cost_s=0.012))
    measured = launch(*ranks(models=(model,)), communication_s=0.004)

    assert "saves 12.0 ms per update" in accumulation_sync.check(tried).evidence
    assert "cost about 3.00 ms per update" in accumulation_sync.check(measured).evidence


def test_one_rank_without_unused_parameters_is_not_enough() -> None:
    none = Model(line="train.py:8", looks_for_unused=True, looked=12, search_s=0.002)
    some = replace(none, unused=("head.weight",))
    first, second = ranks()

    def check(a: Model, b: Model) -> CheckResult:
        return unused_parameters.check(
            launch(replace(first, models=(a,)), replace(second, models=(b,)))
        )

    assert check(none, none).status == "warn"
    assert "(2.00 ms)" in check(none, none).evidence
    assert check(none, some).status == "pass"
    assert check(replace(none, looked=2), none).status == "not-applicable"


@pytest.mark.parametrize(
    ("scaled", "skipped", "status"),
    [
        (0, (), "not-applicable"),
        (100, (), "pass"),
        (100, (0, 1, 2), "pass"),
        (110, (20, 40, 60), "warn"),
        (100, tuple(range(0, 100, 2)), "fail"),
        (6, tuple(range(6)), "fail"),
    ],
)
def test_skipped_updates(scaled: int, skipped: tuple[int, ...], status: str) -> None:
    got = skipped_updates.check(launch(*ranks(scaled=scaled, skipped=skipped)))

    assert got.status == status
    assert not scaled or f"skipped {len(skipped)} of {scaled} updates" in got.evidence


# -- points ---------------------------------------------------------------------------------------


def point(devices: int, batch: float, rate: float = 0.1, **changes: object) -> LaunchFacts:
    values: dict[str, object] = {"name": "SGD", "rate": rate, **changes}
    optimizer = Optimizer(**values)
    return launch(
        *ranks(devices, optimizers=(optimizer,)), devices=devices, samples_per_update=batch
    )


def test_the_rate_is_told_beside_the_batch() -> None:
    linear = learning_rate.check([point(1, 8, 0.1), point(4, 8, 0.4)])
    constant = learning_rate.check([point(1, 8), point(4, 8)])
    strong = learning_rate.check([point(1, 8), point(4, 2)])
    adam = learning_rate.check([point(1, 8, name="AdamW"), point(4, 8, name="AdamW")])

    assert linear.evidence == (
        "SGD, rate 0.4 at 4 devices, 32 samples per update. From 1 to 4 devices the global batch "
        "grows x4, the rate x4. That is the linear rule."
    )
    assert "the rate x1. The linear rule for SGD asks for both alike" in constant.evidence
    assert "The global batch is the same at every device count." in strong.evidence
    assert "For AdamW no simple rule holds" in adam.evidence
    assert {r.status for r in (linear, constant, strong, adam)} == {"pass"}


def test_a_scheduler_that_steps_on_every_ranks_behalf_is_warned_of() -> None:
    twice = point(2, 8, scheduler="CosineAnnealingLR", scheduler_steps=(2, 2, 2))
    per_epoch = point(2, 8, scheduler="StepLR", scheduler_steps=(0, 0, 0, 1, 0, 0))

    assert learning_rate.check([twice]).status == "warn"
    assert learning_rate.check([per_epoch]).status == "pass"


@pytest.mark.parametrize(
    ("batches", "scaling", "status"),
    [
        ((8, 8), "weak", "pass"),
        ((8, 4), "weak", "warn"),
        ((8, 4), "strong", "pass"),
        ((8, 6), "weak", "warn"),
        ((8, 8), "strong", "warn"),
        ((8, 7.9), "weak", "pass"),
    ],
)
def test_what_a_batch_means(batches: tuple[float, float], scaling: str, status: str) -> None:
    got = batch_meaning.check([point(n, b) for n, b in zip((1, 2), batches, strict=True)], scaling)

    assert got.status == status


def test_threads_differ_between_ranks_or_points() -> None:
    one, two = point(1, 8), point(2, 8)
    more = replace(one, ranks=tuple(replace(r, threads=2) for r in one.ranks))

    assert threads.check([one, two]).status == "pass"
    got = threads.check([more, two])
    assert got.status == "fail"
    assert got.evidence.startswith("Threads per rank: 2 at 1 device; 1 at 2 devices.")


# -- documentation --------------------------------------------------------------------------------


def test_every_check_is_documented_and_no_other() -> None:
    page = Path(__file__).parents[2] / "docs" / "checks.md"

    assert tuple(re.findall(r"^### (.+)$", page.read_text(), re.MULTILINE)) == CHECKS
