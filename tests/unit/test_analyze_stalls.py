"""Stalls named and priced: the product's own schedule over made-up step times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from simulation import Job, simulated, swept, true_step_s
from synthetic import machine, sweep_plan

from sfbench.analyze.points import Analysis, analyze
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import LADDER, STEP_COLUMNS, Diagnosis, Interval, LateStep, Stall
from sfbench.diagnose.causes import diagnose

CASES = ((0.05, 10), (0.25, 10), (0.5, 25), (1.0, 50))
COLUMN = {name: place for place, name in enumerate(STEP_COLUMNS)}


def every(size_s: float, period: int, rank: int | None = 0) -> Callable[[int, int], float]:
    def stall(who: int, step: int) -> float:
        due = step > 0 and step % period == 0
        return size_s if due and rank in (None, who) else 0.0

    return stall


def holds(interval: Interval | None, truth: float) -> bool:
    assert interval is not None
    assert interval.low is not None
    assert interval.high is not None
    return interval.low <= truth <= interval.high


def only(found: tuple[Stall, ...]) -> Stall:
    assert len(found) == 1
    return found[0]


def named(diagnoses: tuple[Diagnosis, ...], devices: int) -> Diagnosis:
    return next(d for d in diagnoses if d.id == "periodic-stall" and d.devices == devices)


@pytest.mark.parametrize(("size_s", "period"), CASES)
def test_rank_period_and_cost_are_found_at_one_device_and_at_two(
    size_s: float, period: int
) -> None:
    job = Job(stall=every(size_s, period))
    analysis, diagnoses = swept(job, seed=1, seconds=4.0)

    for point in analysis.points:
        stall, truth = only(point.stalls), true_step_s(job, point.devices, period)
        assert (stall.period_steps, stall.sure) == (period, True)
        assert stall.rank == (0 if point.devices > 1 else None)
        assert stall.size_s.value == pytest.approx(size_s, rel=0.02)
        assert holds(point.step_s, truth)
        assert point.step_s is not None
        assert point.step_s.value == pytest.approx(truth, rel=0.03)
        assert named(diagnoses, point.devices).evidence["period_steps"] == period
    truths = [true_step_s(job, devices, period) for devices in (1, 2)]
    assert holds(analysis.points[1].efficiency, truths[0] / truths[1])


@pytest.mark.parametrize("devices", [4, 8])
def test_turns_alone_that_put_counts_of_steps_apart_change_no_figure(devices: int) -> None:
    job = Job(stall=every(0.25, 10), compute=1.0)
    analysis, diagnoses = swept(job, seed=1, seconds=6.0, counts=(devices,))

    stall, point = only(analysis.points[0].stalls), analysis.points[0]
    assert (stall.rank, stall.period_steps, stall.sure) == (0, 10, True)
    assert stall.size_s.value == pytest.approx(0.25, rel=0.02)
    assert point.step_s is not None
    assert point.step_s.value == pytest.approx(true_step_s(job, devices, 10), rel=0.03)
    assert not [text for text in point.warnings if "only some ranks" in text]
    assert named(diagnoses, devices).rank == 0
    assert [d.id for d in diagnoses if d.severity == "bottleneck"] == ["periodic-stall"]


def test_what_comes_after_the_backward_is_waited_for_a_step_later() -> None:
    job = Job(stall=every(0.25, 10), compute=1.0, after_backward=True)
    analysis, diagnoses = swept(job, seed=1, seconds=6.0)

    stall, point = only(analysis.points[1].stalls), analysis.points[1]
    assert (stall.rank, stall.period_steps, stall.sure) == (0, 10, True)
    assert point.step_s is not None
    assert point.step_s.value == pytest.approx(true_step_s(job, 2, 10), rel=0.03)
    assert analysis.steps["step_s"].max() < 0.05
    assert [d.id for d in diagnoses if d.severity == "bottleneck"] == ["periodic-stall"] * 2


@pytest.mark.parametrize("rank", [0, 1])
def test_who_waits_in_a_collective_of_the_script_s_own_does_not_stall(rank: int) -> None:
    # GIVEN a barrier after the update, at which all ranks wait for one
    at = every(0.25, 10, rank=None)
    launches = [simulated(Job(stall=at), 2, index, 6, 4.0) for index in range(3)]
    launches = [
        with_column(launch, "met_s", lambda who, step: at(who, step) if who != rank else 0.0)
        for launch in launches
    ]
    analysis, _ = of_launches(launches)

    assert only(analysis.points[0].stalls).rank == rank


def test_shares_with_stalls_sum_to_the_whole_step() -> None:
    analysis, _ = swept(Job(stall=every(0.25, 10)), seed=2, seconds=4.0)
    shares = analysis.points[1].time_share
    assert shares is not None
    values = [
        share.value
        for share in (
            shares.compute, shares.host, shares.straggler, shares.jitter, shares.communication,
            shares.data, shares.stalls,
        )
    ]  # fmt: skip
    assert sum(value or 0.0 for value in values) == pytest.approx(1.0)
    assert shares.stalls.value == pytest.approx(0.025 / 0.055, rel=0.05)


def test_a_share_of_stalls_is_known_no_better_than_the_ordinary_step() -> None:
    analysis, _ = swept(Job(stall=every(0.25, 10)), seed=2, seconds=4.0)
    shares = analysis.points[1].time_share
    assert shares is not None
    share = shares.stalls
    assert share.value is not None
    assert share.low is not None
    assert share.high is not None
    assert share.low < share.value - 0.004
    assert share.high > share.value + 0.004


def test_all_ranks_at_the_same_steps_are_nobodys() -> None:
    analysis, diagnoses = swept(Job(stall=every(0.4, 40, rank=None)), seed=3, seconds=4.0)

    stall = only(analysis.points[1].stalls)
    assert (stall.rank, stall.period_steps) == (None, 40)
    assert named(diagnoses, 2).evidence["ranks_that_wait"] == 0


def test_two_stalls_of_one_rank_are_told_apart() -> None:
    often, rarely = every(0.02, 7), every(0.5, 50)
    job = Job(stall=lambda rank, step: often(rank, step) + rarely(rank, step))
    analysis, _ = swept(job, seed=4, seconds=8.0)

    assert {stall.period_steps for stall in analysis.points[1].stalls} == {7, 50}
    assert holds(analysis.points[1].step_s, true_step_s(job, 2, 350))


def test_about_every_twelve_steps_is_known_better_than_by_chance() -> None:
    def seen(launch: MeasuredLaunch) -> MeasuredLaunch:
        late = tuple(
            LateStep(rank=0, step=step, kind="other", line="train.py:7")
            for step in range(1, 400)
            if about_twelve(0, step)
        )
        assert launch.record is not None
        return replace(launch, record=replace(launch.record, late=late))

    job = Job(stall=about_twelve, compute=1.0)
    analysis, _ = of_launches([seen(simulated(job, 2, index, 9, 4.0)) for index in range(4)])

    stall = only(analysis.points[0].stalls)
    assert (stall.rank, stall.per, stall.line) == (0, "irregular", "train.py:7")
    assert holds(stall.per_step_s, 0.25 / 12)
    assert stall.per_step_s.value == pytest.approx(0.25 / 12, rel=0.04)
    assert stall.per_step_s.low is not None
    assert stall.per_step_s.low > 0.9 * stall.per_step_s.value


def about_twelve(rank: int, step: int) -> float:
    """Every 9 to 15 steps, as what comes by the clock."""
    return 0.25 if rank == 0 and step % 60 in (0, 9, 24, 34, 47) else 0.0


def test_ranks_that_stop_at_one_step_wait_once() -> None:
    first, second = every(0.12, 10, rank=0), every(0.25, 14, rank=1)
    job = Job(stall=lambda rank, step: first(rank, step) + second(rank, step), compute=1.0)
    analysis, _ = swept(job, seed=5, launches=6, seconds=4.0, counts=(2,))

    point = analysis.points[0]
    assert {(s.rank, s.period_steps) for s in point.stalls} == {(0, 10), (1, 14)}
    assert holds(point.step_s, true_step_s(job, 2, 70))


@pytest.mark.parametrize("seed", range(4))
def test_bursts_of_a_busy_machine_are_no_stalls(seed: int) -> None:
    analysis, diagnoses = swept(Job(burst=0.02, burst_s=0.2), seed, seconds=4.0)

    assert not any(point.stalls for point in analysis.points)
    assert not [d for d in diagnoses if d.id == "periodic-stall"]


def test_what_may_come_once_per_start_is_no_sure_bottleneck() -> None:
    job = Job(stall=lambda rank, step: 2.0 if rank == 0 and step == 100 else 0.0)
    analysis, diagnoses = swept(job, seed=5, seconds=4.0)

    stall = only(analysis.points[1].stalls)
    assert not stall.sure
    step_s = analysis.points[1].step_s
    assert step_s is not None
    assert step_s.low == pytest.approx(true_step_s(Job(), 2, 100), rel=0.01)
    assert step_s.value == pytest.approx(true_step_s(Job(stall=every(2.0, 100)), 2, 100), rel=0.03)
    found = named(diagnoses, 2)
    assert (found.severity, found.evidence["verdict"]) == ("info", "inconclusive")
    assert any("once per start" in line for line in found.advice)


def with_column(
    launch: MeasuredLaunch, name: str, values: Callable[[int, int], float]
) -> MeasuredLaunch:
    assert launch.steps is not None
    steps = launch.steps.copy()
    for row in steps:
        row[COLUMN[name]] = values(int(row[0]), int(row[1]))
    return replace(launch, steps=steps)


def of_launches(launches: list[MeasuredLaunch]) -> tuple[Analysis, tuple[Diagnosis, ...]]:
    frame, host = step_frame(launches), machine(8)
    analysis = analyze(sweep_plan(rungs=LADDER), host, launches, frame)
    return analysis, diagnose(analysis.points, launches, analysis.steps, host)


@pytest.mark.parametrize(("saved", "kind"), [(0.0, "evaluation"), (1.0, "saving")])
def test_what_stands_outside_the_loop_is_in_no_figure_of_the_step(saved: float, kind: str) -> None:
    job, other = Job(), every(0.5, 25)
    launches = [simulated(job, 2, index, 6, 4.0) for index in range(3)]
    launches = [with_column(launch, "other_s", other) for launch in launches]
    launches = [
        with_column(launch, "saved_s", lambda rank, step: saved * other(rank, step))
        for launch in launches
    ]
    analysis, diagnoses = of_launches(launches)

    point = analysis.points[0]
    stall = only(point.stalls)
    assert (stall.kind, stall.rank, stall.period_steps) == (kind, 0, 25)
    assert stall.per_step_s.value == pytest.approx(0.02)
    assert point.step_s is not None
    assert point.step_s.value == pytest.approx(0.03, rel=0.05)
    found = named(diagnoses, 2)
    assert found.severity == "bottleneck"
    assert found.evidence["share_of_wall_time"] == pytest.approx(0.4, rel=0.05)
    step_s = analysis.points[-1].step_s
    assert step_s is not None
    assert step_s.low is not None
    half = 0.6 * 0.4 * (step_s.value / step_s.low - 1)  # by the step alone; half of it is regained
    assert found.regain.high is not None
    assert found.regain.high - found.regain.value > 0.9 * half / 2
    assert found.regain.value == pytest.approx(0.2, rel=0.05)


def test_what_is_done_for_saving_is_part_of_it() -> None:
    job, saved = Job(stall=every(0.1, 25)), every(0.5, 25)
    launches = [simulated(job, 2, index, 9, 4.0) for index in range(3)]
    for name in ("other_s", "saved_s"):
        launches = [with_column(launch, name, saved) for launch in launches]
    analysis, _ = of_launches(launches)

    point = analysis.points[0]
    stall = only(point.stalls)
    assert (stall.kind, stall.rank, stall.period_steps) == ("saving", 0, 25)
    assert stall.size_s.value == pytest.approx(0.6, rel=0.01)
    assert point.step_s is not None
    assert point.step_s.value == pytest.approx(0.03, rel=0.05)


def test_a_pause_at_each_pass_is_one_of_the_epoch_however_few_were_seen() -> None:
    at = every(0.4, 100, rank=None)
    launches = [simulated(Job(stall=at), 2, index, 7, 4.0) for index in range(3)]
    launches = [
        with_column(launch, "pass_started", lambda rank, step: float(step % 100 == 0))
        for launch in launches
    ]
    analysis, _ = of_launches(launches)

    stall = only(analysis.points[0].stalls)
    assert (stall.per, stall.kind, stall.sure) == ("epoch", "epoch-start", True)


def test_a_pass_that_started_while_batches_were_replayed_is_one_pass() -> None:
    launches = [
        simulated(Job(stall=every(0.4, 40, rank=None)), 2, index, 7, 4.0) for index in range(3)
    ]
    launches = [
        with_pass(
            with_column(launch, "pass_started", lambda rank, step: float(step % 40 in (0, 6))), 40
        )
        for launch in launches
    ]
    analysis, _ = of_launches(launches)

    stall = only(analysis.points[0].stalls)
    assert (stall.per, stall.period_steps) == ("epoch", 40)
    assert stall.per_step_s.value == pytest.approx(0.4 / 40, rel=0.01)


def with_pass(launch: MeasuredLaunch, steps: int) -> MeasuredLaunch:
    assert launch.record is not None
    loop = replace(launch.record.loop, steps_per_pass=steps)
    return replace(launch, record=replace(launch.record, loop=loop))


def test_steps_are_freed_of_stalls_on_all_ranks_that_wait() -> None:
    analysis, _ = swept(Job(stall=every(0.25, 10)), seed=8, seconds=4.0)
    steps = analysis.steps[(analysis.steps["devices"] == 2) & (analysis.steps["rung"] == "train")]

    stalled = steps[steps["stall_s"] > 0]
    assert set(stalled["rank"]) == {0, 1}
    assert np.allclose(stalled["stall_s"], 0.25, rtol=0.02)
    assert steps["step_s"].max() < 0.05
