"""interconnect: the link, DDP's buckets on it, and what settings would save."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ladder import Times, diagnosed, launched, loop

from sfbench.common.schema import AllReduceTime, OwnCollective
from sfbench.diagnose.link import (
    Link,
    best_cap_mb,
    bus_bytes_per_s,
    exposed_s,
    fit_link,
    split,
)
from sfbench.probe.allreduce import wanted_sizes

ID = "interconnect"
MIB = 2**20

sizes = st.lists(st.integers(1, 100 * MIB), min_size=1, max_size=20)
links = st.builds(Link, latency_s=st.floats(0, 0.1), s_per_byte=st.floats(0, 1e-8))


def times_of(link: Link, *sizes: int) -> tuple[AllReduceTime, ...]:
    return tuple(AllReduceTime(bytes=size, seconds=link.cost_s(size)) for size in sizes)


def test_two_sizes_tell_latency_and_bandwidth() -> None:
    link = fit_link(times_of(Link(latency_s=1e-3, s_per_byte=1e-9), 4, 25 * MIB))
    assert link is not None
    assert link.latency_s == pytest.approx(1e-3, rel=1e-3)
    assert link.s_per_byte == pytest.approx(1e-9, rel=1e-3)


def test_neither_part_of_a_link_is_below_zero() -> None:
    falling = (AllReduceTime(bytes=4, seconds=2e-3), AllReduceTime(bytes=4000, seconds=1e-3))
    link = fit_link(falling)
    assert link == Link(latency_s=pytest.approx(1.5e-3), s_per_byte=0.0)
    assert fit_link(falling[:1]) is None


def test_bus_bandwidth_of_two_ranks_is_what_each_sends() -> None:
    assert bus_bytes_per_s(1000, 0.5, 2) == 2000.0
    assert bus_bytes_per_s(1000, 0.5, 4) == 3000.0


def test_what_backward_does_not_hide() -> None:
    # GIVEN backward of 100 ms with two equal buckets, ready after 50 and 100 ms
    buckets = (MIB, MIB)
    # WHEN each takes 30 ms, the first is hidden
    assert exposed_s(buckets, 0.1, Link(latency_s=0.03, s_per_byte=0)) == pytest.approx(0.03)
    # WHEN each takes 80 ms, the second waits for the first until 130 ms, and ends at 210
    assert exposed_s(buckets, 0.1, Link(latency_s=0.08, s_per_byte=0)) == pytest.approx(0.11)


@given(sizes, st.floats(0, 10), links)
def test_exposed_time_is_within_its_bounds(
    buckets: list[int], backward_s: float, link: Link
) -> None:
    exposed = exposed_s(buckets, backward_s, link)
    assert link.cost_s(buckets[-1]) - 1e-9 <= exposed
    assert exposed <= sum(link.cost_s(size) for size in buckets) + 1e-9


@given(st.integers(1, 10**9), st.sampled_from([1, 25, 100]))
def test_buckets_hold_all_bytes_and_no_more_than_allowed(total: int, cap_mb: int) -> None:
    buckets = split(total, cap_mb)
    assert sum(buckets) == total
    assert max(buckets) <= cap_mb * MIB
    assert buckets[0] <= MIB


def test_a_slow_start_wants_few_buckets_and_a_thin_link_many() -> None:
    latency, thin = Link(latency_s=0.01, s_per_byte=1e-12), Link(latency_s=1e-6, s_per_byte=1e-9)
    assert best_cap_mb(100 * MIB, 0.05, latency)[0] >= 25
    assert best_cap_mb(100 * MIB, 0.2, thin)[0] <= 5


def exchanged(link: Link, buckets: tuple[int, ...], exposed: float, **changes: object) -> object:
    """4 devices with a backward of 80 ms in a step of 100 ms and so much exposed."""
    times = Times(
        cached=[0.1 + exposed] * 4,
        unsynced=[0.1] * 4,
        forward=[0.02] * 4,
        forward_synced=[0.02] * 4,
    )
    changes = {"gradient_as_bucket_view": False, **changes}
    job = loop(bucket_bytes=buckets, gradient_bytes=sum(buckets), **changes)
    launch = launched(0, times, loop=job, all_reduce=times_of(link, 4, *set(wanted_sizes(buckets))))
    return diagnosed(launch).only(ID, 4)


def test_many_small_buckets_are_bound_by_latency() -> None:
    # GIVEN 40 buckets of 100 kB at 5 ms each: 200 ms in all, from 2 ms on
    link, buckets = Link(latency_s=5e-3, s_per_byte=1e-12), (100_000,) * 40
    predicted = exposed_s(buckets, 0.08, link)
    assert predicted == pytest.approx(0.122, abs=1e-3)
    found = exchanged(link, buckets, predicted)
    # THEN half of the step is exposed, and two buckets would hide nearly all of it
    assert found.severity == "bottleneck"
    assert found.regain.value == pytest.approx(predicted / (0.1 + predicted), abs=1e-3)
    assert found.evidence["bound"] == "latency"
    assert found.evidence["buckets"] == 40
    assert found.evidence["best_bucket_cap_saves_s"] > 0.1
    assert found.advice[0].startswith("Set bucket_cap_mb=")
    assert "40 buckets" in found.advice[0]


@pytest.mark.parametrize(
    ("buckets", "more"),
    [
        ((16_640,) * 60, (60 * 16_640,)),
        ((MIB,) * 60, (25 * MIB,)),
        ((MIB, 25 * MIB, 3 * MIB), ()),
        ((MIB, MIB), ()),
        ((), ()),
    ],
)
def test_small_buckets_are_timed_beside_a_large_one(
    buckets: tuple[int, ...], more: tuple[int, ...]
) -> None:
    assert wanted_sizes(buckets) == (*buckets, *more)


def test_the_figures_of_the_largest_bucket_are_those_of_a_bucket() -> None:
    link, buckets = Link(latency_s=5e-3, s_per_byte=1e-8), (100_000,) * 40
    found = exchanged(link, buckets, exposed_s(buckets, 0.08, link))
    assert found.evidence["all_reduce_of_largest_bucket_s"] == pytest.approx(6e-3)


def test_few_large_buckets_are_bound_by_bandwidth() -> None:
    # GIVEN 2 buckets of 52 ms, ready after 40 and 80 ms: 65 ms are exposed
    link, buckets = Link(latency_s=1e-5, s_per_byte=2e-9), (25 * MIB, 25 * MIB)
    predicted = exposed_s(buckets, 0.08, link)
    found = exchanged(link, buckets, predicted)
    # THEN half of the bytes leave the second one's 26 ms
    assert found.evidence["bound"] == "bandwidth"
    assert found.evidence["link_bytes_per_s"] == pytest.approx(5e8, rel=1e-3)
    assert found.evidence["bf16_compression_saves_s"] == pytest.approx(0.0387, rel=0.01)
    assert any("bf16" in line for line in found.advice)
    assert any("gradient_as_bucket_view=True saves copying 50.0 MiB" in x for x in found.advice)


def test_gradients_that_are_bf16_already_are_not_compressed() -> None:
    link, buckets = Link(latency_s=1e-5, s_per_byte=2e-9), (25 * MIB, 25 * MIB)
    found = exchanged(link, buckets, 0.05, dtype="bfloat16")
    assert found.evidence["bf16_compression_saves_s"] is None
    assert not any("bf16" in line for line in found.advice)


def test_what_the_link_does_not_explain_is_said() -> None:
    link = Link(latency_s=1e-4, s_per_byte=1e-12)
    found = exchanged(link, (100_000,), 0.05)
    assert found.evidence["bound"] == "not-the-link"
    assert "best_bucket_cap_mb" not in found.evidence
    assert any("get in each other's way" in line for line in found.advice)


@pytest.mark.parametrize(
    ("unused", "advice"), [(True, "find_unused_parameters"), (False, "broadcast_buffers=False")]
)
def test_a_longer_forward_with_sync_has_its_own_cause(unused: bool, advice: str) -> None:
    # GIVEN forward of 20 ms alone, 50 ms where gradients are averaged
    times = Times(
        cached=[0.13] * 2, unsynced=[0.1] * 2, forward=[0.02] * 2, forward_synced=[0.05] * 2
    )
    launch = launched(0, times, loop=loop(find_unused_parameters=unused))
    found = diagnosed(launch).only(ID, 2)
    assert found.evidence["forward_longer_with_sync_s"] == 0.03
    assert found.evidence["bound"] == "unknown"
    assert advice in found.advice[0]


def test_one_device_has_no_interconnect() -> None:
    times = Times(cached=[0.15], unsynced=[0.1])
    assert diagnosed(launched(0, times)).diagnoses == ()


def test_the_scripts_own_collectives_are_counted_priced_and_named() -> None:
    # GIVEN 20 ms of communication, and 40 all-reduces of 0.4 ms at one line
    own = OwnCollective(
        name="all_reduce", line="train.py:27", calls_per_step=40.0, seconds=4e-4, bytes=4
    )
    times = Times(cached=[0.1] * 2, unsynced=[0.08] * 2)
    found = diagnosed(
        launched(0, Times(cached=[0.08])), launched(1, times, own_collectives=(own,))
    ).only("interconnect", 2)
    # THEN they are what the step is bound by, and come first
    assert found.evidence["bound"] == "own-collectives"
    assert found.evidence["own_collectives_s_per_step"] == pytest.approx(0.016)
    assert "40 all_reduce calls per step at train.py:27 take about 16.0 ms" in found.advice[0]


def test_a_model_without_buffers_is_not_told_to_leave_them() -> None:
    # GIVEN forward that takes 15 ms longer with sync on
    times = Times(
        cached=[0.1] * 2, unsynced=[0.08] * 2, forward=[0.02] * 2, forward_synced=[0.035] * 2
    )
    for buffers, said in ((0, False), (2, True)):
        found = diagnosed(
            launched(0, Times(cached=[0.08])), launched(1, times, loop=loop(buffers=buffers))
        ).only("interconnect", 2)
        assert any("broadcast_buffers" in line for line in found.advice) is said
