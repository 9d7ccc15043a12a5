"""What a share amounts to, what is regained, in which order, and never more than was lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ladder import Times, diagnosed, launched

from sfbench.common.schema import Diagnosis, Interval, Point, Share
from sfbench.common.units import is_known
from sfbench.diagnose.ranking import ranked
from sfbench.diagnose.recoverable import against_one
from sfbench.diagnose.severity import judge


@pytest.mark.parametrize(
    ("value", "half", "severity", "verdict"),
    [
        (0.10, 0.01, "bottleneck", "measured"),
        (0.30, 0.17, "bottleneck", "measured"),
        (0.50, 0.38, "bottleneck", "measured"),
        (0.50, 0.45, "info", "inconclusive"),
        (0.20, 0.19, "info", "inconclusive"),
        (0.06, 0.02, "contributor", "measured"),
        (0.06, 0.05, "info", "inconclusive"),
        (0.03, 0.01, "info", "minor"),
    ],
)
def test_share_and_interval_make_the_severity(
    value: float, half: float, severity: str, verdict: str
) -> None:
    judged = judge(Share(value=value, low=value - half, high=value + half))
    assert judged is not None
    assert (judged.severity, judged.verdict) == (severity, verdict)


def test_without_an_interval_nothing_is_certain() -> None:
    judged = judge(Share(value=0.5))
    assert judged is not None
    assert judged.verdict == "inconclusive"


@pytest.mark.parametrize(
    "share",
    [
        Share(reason="rung solo: no"),
        Share(value=0.01, low=0.009, high=0.011),
        Share(value=0.03, low=-0.01, high=0.07),
        Share(value=-0.2, low=-0.3, high=-0.1),
    ],
)
def test_nothing_is_said_of_little(share: Share) -> None:
    assert judge(share) is None


def test_what_one_device_loses_too_is_no_loss_of_scaling() -> None:
    # GIVEN 30 % here, 10 % at one device, efficiency 80 %
    point = Point(devices=4, status="ok", efficiency=Interval(value=0.8, low=0.77, high=0.83))
    here = Share(value=0.3, low=0.26, high=0.34)
    there = Share(value=0.1, low=0.05, high=0.15)
    regain = against_one(here, there, point)
    # THEN 0.3 - 0.8 * 0.1, and the halves 0.04, 0.8 * 0.05, 0.1 * 0.03 join
    half = (0.04**2 + 0.04**2 + 0.003**2) ** 0.5
    assert regain.value == pytest.approx(0.22)
    assert regain.low == pytest.approx(0.22 - half)
    assert regain.high == pytest.approx(0.22 + half)


def test_two_faults_are_ranked_by_what_they_give_back() -> None:
    # GIVEN 1 device of 100 ms; at 4 one rank 20 ms slower, 30 ms of communication, 50 ms of waiting
    slow = [0.1, 0.1, 0.12, 0.1]
    times = Times(cached=[0.15] * 4, train=[0.2] * 4, unsynced=slow, solo=slow)
    found = diagnosed(launched(0, Times(cached=[0.1])), launched(1, times))
    # THEN each is named with its part of the step, and together they make the half that is lost
    assert [(d.id, d.rank) for d in found.diagnoses] == [
        ("data-loader-starvation", None),
        ("interconnect", None),
        ("straggler", 2),
    ]
    values = [d.regain.value for d in found.diagnoses]
    assert values == pytest.approx([0.25, 0.15, 0.10], abs=1e-4)
    assert found.points[1].efficiency is not None
    assert sum(values) == pytest.approx(1 - found.points[1].efficiency.value, abs=1e-4)


def diagnosis(value: float, devices: int) -> Diagnosis:
    return Diagnosis(
        id="interconnect", devices=devices, severity="contributor", rank=None,
        regain=Interval(value=value, low=value - 0.1, high=value + 0.1), evidence={}, advice=(),
    )  # fmt: skip


ratios = st.floats(-0.5, 1.5)


@given(st.lists(ratios, max_size=6), st.floats(0, 1.2))
def test_no_more_is_regained_than_was_lost(values: list[float], efficiency: float) -> None:
    at = Interval(value=efficiency, low=None, high=None)
    one = Point(devices=1, status="ok", efficiency=Interval(value=1.0, low=1.0, high=1.0))
    points = (one, Point(devices=4, status="ok", efficiency=at))
    found = ranked([diagnosis(value, 4) for value in values], points, one)
    regained = [d.regain.value for d in found]
    assert sum(regained) <= max(0.0, 1 - efficiency) + 1e-9
    assert regained == sorted(regained, reverse=True)
    assert all(r >= 0 for r in regained)
    assert all(d.regain.low is not None and d.regain.low <= d.regain.value for d in found)


def test_on_shared_cores_no_more_is_promised_than_they_allow() -> None:
    # GIVEN 38 % where shared cores allow 50 %: 12 points can be had, not 62
    at = Interval(value=0.38, low=0.36, high=0.40)
    one = Point(devices=1, status="ok", efficiency=Interval(value=1.0, low=1.0, high=1.0))
    crowded = Point(devices=4, status="ok", efficiency=at, best_possible_efficiency=0.5)

    (found,) = ranked([diagnosis(0.34, 4)], (one, crowded), one)

    assert found.regain.value == pytest.approx(0.12)
    assert found.regain.high is not None
    assert found.regain.high < 0.16


def test_a_job_that_leaves_its_cores_idle_may_beat_that_limit() -> None:
    at = Interval(value=0.6, low=0.58, high=0.62)
    one = Point(devices=1, status="ok", efficiency=Interval(value=1.0, low=1.0, high=1.0))
    crowded = Point(devices=4, status="ok", efficiency=at, best_possible_efficiency=0.5)

    (found,) = ranked([diagnosis(0.34, 4)], (one, crowded), one)

    assert found.regain.value == pytest.approx(0.34)


def test_a_failed_point_has_no_diagnosis() -> None:
    from synthetic import failed

    found = diagnosed(launched(0, Times(cached=[0.15], train=[0.2])), failed(1, 2))
    assert {d.devices for d in found.diagnoses} == {1}


def test_no_interval_of_a_regain_passes_what_may_be_lost() -> None:
    # GIVEN an efficiency of 80 %, or 70 at least, and a cause that may be worth 5 to 60 points
    efficiency = Interval(value=0.8, low=0.7, high=0.9)
    point = Point(devices=2, status="ok", efficiency=efficiency)
    one = Point(devices=1, status="ok")
    wide = Interval(value=0.1, low=0.05, high=0.6)
    [at_two, at_one] = ranked(
        [
            _found("interconnect", 2, wide),
            _found("small-batch", 1, Interval(value=0.05, low=0.02, high=1.79)),
        ],
        [one, point],
        one,
    )
    # THEN it ends at the 30 points that may be lost, and at one device at the whole step
    assert (at_two.regain.value, at_two.regain.low) == (0.1, 0.05)
    assert at_two.regain.high == pytest.approx(0.3)
    assert at_one.regain.high == pytest.approx(1.0)


def test_without_an_interval_the_whole_step_may_be_lost() -> None:
    # GIVEN an efficiency whose interval is not known: its value alone caps nothing
    point = Point(devices=2, status="ok", efficiency=Interval(value=0.8, low=None, high=None))
    regain = Interval(value=0.1, low=0.05, high=0.6)
    one = Point(devices=1, status="ok")
    [found] = ranked([_found("interconnect", 2, regain)], [one, point], one)
    assert found.regain == regain


def test_nothing_is_diagnosed_of_a_share_that_is_no_figure() -> None:
    # GIVEN four launches: in one loading takes most of the step, in the others nothing
    slow, quick = (Times(cached=[0.1], train=[train], data_wait=[0.0]) for train in (0.3, 0.1))
    sure = diagnosed(*(launched(n, slow) for n in range(4)))
    vague = diagnosed(launched(0, slow), *(launched(n, quick) for n in range(1, 4)))
    share = vague.points[0].time_share
    assert share is not None
    assert share.data.value is not None
    assert share.data.value > 0.1
    assert not is_known(share.data)
    # THEN the cause is named where it is sure, and nothing is said where the table shows "?"
    assert [found.id for found in sure.diagnoses] == ["data-loader-starvation"]
    assert vague.diagnoses == ()


def _found(cause: str, devices: int, regain: Interval) -> Diagnosis:
    return Diagnosis(
        id=cause, devices=devices, severity="bottleneck", rank=None, regain=regain, evidence={},
        advice=(),
    )  # fmt: skip
