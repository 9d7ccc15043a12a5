"""Efficiency, plain and with drift taken out, and what is lost to what."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import StepTable, machine, measured, steady_launch, sweep_plan

from sfbench.analyze.drift import disagree
from sfbench.analyze.efficiency import efficiency
from sfbench.analyze.intervals import LaunchVariance
from sfbench.analyze.losses import losses
from sfbench.analyze.parts import COMMUNICATION, COMPUTE, DATA, HOST, JITTER, STRAGGLER
from sfbench.analyze.points import analyze
from sfbench.analyze.rates import JobRate, job_rate
from sfbench.analyze.steps import job_steps, ordinary
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import Interval, Point, Share, TimeShare


def rate_of(*launches: MeasuredLaunch) -> JobRate:
    return job_rate(ordinary(job_steps(step_frame(launches))))


def half_of(interval: Interval) -> float:
    """Half-width of the logarithm."""
    assert interval.high is not None
    return math.log(interval.high / interval.value)


def test_one_device_has_efficiency_one_by_definition() -> None:
    rate = rate_of(steady_launch(0, 1, [0.1, 0.2, 0.3]))
    assert efficiency(1, rate, rate, None) == Interval(value=1.0, low=1.0, high=1.0)


def test_with_few_rounds_the_interval_is_that_of_two_independent_means() -> None:
    # GIVEN three blocks each, log spread d at 4 devices and none at 1
    d = 0.01
    one = rate_of(steady_launch(0, 1, [0.1] * 3))
    four = rate_of(steady_launch(1, 4, [0.1 * math.exp(d), 0.1, 0.1 * math.exp(-d)]))
    # THEN all of the variance, and so Welch's degrees of freedom (2), are those of 4 devices
    assert half_of(efficiency(4, four, one, None)) == pytest.approx(
        4.302653 * d / math.sqrt(3), rel=1e-5
    )


def test_from_four_rounds_on_it_is_that_of_the_pairs() -> None:
    # GIVEN a machine whose speed doubles over four rounds, for 1 and 2 devices alike
    speeds = [1.0, 1.2, 1.5, 2.0]
    one = rate_of(*(steady_launch(2 * r, 1, [0.1 / v] * 2, round_=r) for r, v in enumerate(speeds)))
    two = rate_of(
        *(steady_launch(2 * r + 1, 2, [0.125 / v] * 2, round_=r) for r, v in enumerate(speeds))
    )
    # THEN the drift cancels
    got = efficiency(2, two, one, None)
    assert (got.value, got.low, got.high) == (
        pytest.approx(0.8),
        pytest.approx(0.8),
        pytest.approx(0.8),
    )


def test_with_few_rounds_the_sweep_tells_how_much_launches_vary() -> None:
    # GIVEN two rounds, and launches of the whole sweep known to vary by 4 % with 6 dof
    shared = LaunchVariance(variance=0.04**2, dof=6)
    one = rate_of(*(steady_launch(r, 1, [0.1] * 3, round_=r) for r in range(2)))
    two = rate_of(*(steady_launch(2 + r, 2, [0.1] * 3, round_=r) for r in range(2)))
    # THEN the error is sqrt(0.04^2 / 2 + 0.04^2 / 2), and t(0.975; 6) = 2.446912
    assert half_of(efficiency(2, two, one, shared)) == pytest.approx(2.446912 * 0.04, rel=1e-6)


def test_with_a_single_block_there_is_no_interval() -> None:
    rate = rate_of(steady_launch(0, 2, [0.1]))
    got = efficiency(2, rate, rate_of(steady_launch(1, 1, [0.1] * 3)), None)
    assert (got.value, got.low, got.high) == (pytest.approx(1.0), None, None)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=5),
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=5),
    st.sampled_from([2, 4, 8]),
    st.floats(0.1, 10.0),
)
def test_a_faster_clock_does_not_change_efficiency(
    one: list[float], many: list[float], devices: int, scale: float
) -> None:
    def at(factor: float) -> Interval:
        return efficiency(
            devices,
            rate_of(steady_launch(0, devices, [v * factor for v in many], steps=2)),
            rate_of(steady_launch(1, 1, [v * factor for v in one], steps=2)),
            None,
        )

    plain, scaled = at(1.0), at(scale)
    assert scaled.value == pytest.approx(plain.value)
    if plain.low is not None:
        assert (scaled.low, scaled.high) == (
            pytest.approx(plain.low, rel=1e-6),
            pytest.approx(plain.high, rel=1e-6),
        )


def solo_launch(index: int, devices: int, *, train: float, solo: float) -> MeasuredLaunch:
    table = StepTable(devices)
    for cycle in range(6):
        table.block("train", [train] * 4, cycle=cycle)
        table.block("cached", [train] * 4, cycle=cycle)
        table.block("unsynced", [train] * 4, cycle=cycle)
        table.solo([solo] * devices, cycle=cycle)
    return measured(index, table)


def analyzed(*launches: MeasuredLaunch, **plan: object) -> tuple[Point, ...]:
    asked = sweep_plan(rungs=("train", "cached", "unsynced", "solo"), **plan)
    return analyze(asked, machine(8), launches, step_frame(launches)).points


def test_drift_is_taken_out_through_the_solo_rung() -> None:
    # GIVEN all steps 25 % longer while 2 devices were measured, the solo ones too
    points = analyzed(
        solo_launch(0, 1, train=0.100, solo=0.080), solo_launch(1, 2, train=0.125, solo=0.100)
    )
    # THEN efficiency is 0.8 as measured and 1 without that, and the reader is told
    assert points[0].efficiency_drift_corrected == Interval(value=1.0, low=1.0, high=1.0)
    assert points[1].efficiency_plain is not None
    assert points[1].efficiency_plain.value == pytest.approx(0.8)
    assert points[1].efficiency_drift_corrected is not None
    assert points[1].efficiency_drift_corrected.value == pytest.approx(1.0)
    # AND what is known better is the efficiency that is shown
    assert points[1].efficiency == points[1].efficiency_drift_corrected
    assert points[1].efficiency_from == "solo-rung"
    assert points[1].warnings[-1].startswith("the machine changed its speed during the sweep")


def test_a_solo_step_that_is_a_small_part_tells_no_drift() -> None:
    # GIVEN a starved job as fast at 2 devices; its short solo steps were twice as long there
    points = analyzed(
        solo_launch(0, 1, train=0.1, solo=0.004), solo_launch(1, 2, train=0.1, solo=0.008)
    )
    # THEN what was measured is shown
    assert points[1].efficiency == points[1].efficiency_plain
    assert points[1].efficiency_from == "samples-per-s"
    assert points[1].efficiency is not None
    assert points[1].efficiency.value == pytest.approx(1.0)


def test_a_slow_device_is_no_drift() -> None:
    # GIVEN rank 1 is 50 % slower, alone as well
    table = StepTable(2)
    for cycle in range(6):
        table.block("train", [0.15] * 4, cycle=cycle).block("cached", [0.15] * 4, cycle=cycle)
        table.block("unsynced", [[0.10, 0.15]] * 4, cycle=cycle)
        table.solo([0.10, 0.15], cycle=cycle)
    points = analyzed(solo_launch(0, 1, train=0.1, solo=0.1), measured(1, table))
    assert points[1].slow_rank == 1
    assert points[1].efficiency_drift_corrected is not None
    assert points[1].efficiency_drift_corrected.value == pytest.approx(2 / 3)


def test_smaller_batches_are_no_drift_either() -> None:
    # GIVEN strong scaling: a solo step at 2 devices is half the work
    half = solo_launch(1, 2, train=0.05, solo=0.05)
    assert half.steps is not None
    half.steps[:, 11] = 4
    points = analyzed(solo_launch(0, 1, train=0.1, solo=0.1), half, scaling="strong")
    assert points[1].efficiency_drift_corrected is None
    assert points[1].efficiency == points[1].efficiency_plain
    assert points[1].efficiency_from == "samples-per-s"


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ((0.7, 0.8), (0.81, 0.9), True),
        ((0.81, 0.9), (0.7, 0.8), True),
        ((0.7, 0.8), (0.8, 0.9), False),
        ((None, None), (0.8, 0.9), False),
    ],
)
def test_intervals_disagree_where_they_do_not_meet(
    first: tuple[float, float], second: tuple[float, float], apart: bool
) -> None:
    a = Interval(value=0.75, low=first[0], high=first[1])
    b = Interval(value=0.85, low=second[0], high=second[1])
    assert disagree(a, b) is apart


def shares(**values: float | None) -> TimeShare:
    parts = ("compute", "host", "straggler", "jitter", "communication", "data")
    return TimeShare(**{part: Share(value=values.get(part, 0.0)) for part in parts})


ONE = Point(
    devices=1,
    status="ok",
    efficiency=Interval(value=1.0, low=1.0, high=1.0),
    time_share=shares(compute=0.97, data=0.03),
)
EIGHT = Point(
    devices=8,
    status="ok",
    efficiency=Interval(value=0.78, low=0.77, high=0.79),
    time_share=shares(compute=0.76, data=0.12, communication=0.08, straggler=0.03, host=0.01),
)


def test_losses_are_what_each_part_grew_by_and_sum_to_the_loss() -> None:
    found = losses(EIGHT, ONE)
    assert found is not None
    assert {loss.part: loss.lost.value for loss in found} == {
        COMPUTE: pytest.approx(0.76 - 0.78 * 0.97),
        DATA: pytest.approx(0.12 - 0.78 * 0.03),
        COMMUNICATION: pytest.approx(0.08),
        STRAGGLER: pytest.approx(0.03),
        JITTER: pytest.approx(0.0),
        HOST: pytest.approx(0.01),
    }
    assert sum(loss.lost.value for loss in found) == pytest.approx(0.22)


def test_an_unknown_share_leaves_the_losses_unknown() -> None:
    assert losses(replace(EIGHT, time_share=shares(data=None)), ONE) is None
    assert losses(replace(EIGHT, time_share=None), ONE) is None
    assert losses(replace(EIGHT, efficiency=None), ONE) is None
