"""Independent copies are told from one job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfbench.probe.loop.verification import RankFacts, verify, wrapper

RANK = RankFacts(
    anchor=0,
    updates_per_step=1,
    loaders=1,
    samples_known=True,
    group_size=2,
    ddp_forwards=4,
    sharded=False,
    collective_bytes=0,
    gradient_bytes=1000,
    weights=1.5,
    inputs=(1.0,),
)
OTHER = replace(RANK, inputs=(2.0,))
BARE = replace(RANK, ddp_forwards=0)
OTHER_BARE = replace(BARE, inputs=(2.0,), weights=1.6)


def kind(*facts: RankFacts) -> str | None:
    refusal = verify(facts, len(facts))
    return refusal.kind if refusal else None


def test_ddp_is_one_job() -> None:
    assert kind(RANK, OTHER) is None
    assert wrapper((RANK, OTHER)) == "ddp"


def test_one_device_needs_no_group() -> None:
    assert kind(replace(BARE, group_size=0)) is None


@pytest.mark.parametrize("size", [0, 1, 4])
def test_no_group_or_another_size(size: int) -> None:
    assert kind(RANK, replace(OTHER, group_size=size)) == "no-process-group"


def test_never_wrapped() -> None:
    assert kind(BARE, OTHER_BARE) == "not-wrapped"


def test_never_wrapped_with_the_same_seed_and_data() -> None:
    assert kind(BARE, BARE) == "not-wrapped"


def test_a_loss_reduced_for_the_log_is_no_gradient_sync() -> None:
    few = replace(BARE, collective_bytes=4)
    assert kind(few, replace(OTHER_BARE, collective_bytes=4)) == "not-wrapped"


def test_own_all_reduce_is_one_job() -> None:
    own = replace(BARE, collective_bytes=1000)
    both = (own, replace(own, inputs=(2.0,)))
    assert kind(*both) is None
    assert wrapper(both) == "own-collectives"


def test_sharded_parameters_are_one_job() -> None:
    shards = (replace(BARE, sharded=True), replace(OTHER_BARE, sharded=True))
    assert kind(*shards) is None
    assert wrapper(shards) == "fsdp"


def test_equal_weights_from_different_inputs_are_kept_equal_somehow() -> None:
    assert kind(BARE, replace(BARE, inputs=(2.0,))) is None


def test_ranks_that_train_otherwise() -> None:
    assert kind(RANK, replace(OTHER, updates_per_step=2)) == "ranks-disagree"


def test_no_samples() -> None:
    assert kind(replace(RANK, samples_known=False), replace(OTHER, samples_known=False)) == (
        "no-samples"
    )
