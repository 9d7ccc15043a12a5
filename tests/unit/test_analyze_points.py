"""Launches to points."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from synthetic import (
    LOOP,
    StepTable,
    failed,
    launch_record,
    machine,
    measured,
    outcome,
    steady_launch,
    sweep_plan,
)

from sfbench.analyze.points import Analysis, analyze
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import STEP_COLUMNS, Interval, LaunchSummary, RankInfo, RankResult
from sfbench.plan.sweep_plan import SweepPlan


def run(*launches: MeasuredLaunch, plan: SweepPlan | None = None, cores: int = 8) -> Analysis:
    return analyze(plan or sweep_plan(), machine(cores), launches, step_frame(launches))


def test_rate_is_total_samples_over_total_time() -> None:
    # GIVEN one device that takes 8 samples in 0.1 s for ten steps, then in 0.3 s for ten
    # THEN 160 samples / 4 s = 40 per s, not the mean of 80 and 26.7
    [point] = run(steady_launch(0, 1, [0.1, 0.3])).points
    assert point.samples_per_s is not None
    assert point.samples_per_s.value == pytest.approx(40.0)
    assert point.step_s is not None
    assert point.step_s.value == pytest.approx(0.2)
    assert (point.steps_measured, point.batch_per_device, point.global_batch) == (20, 8.0, 8.0)


def test_the_interval_is_student_t_on_the_blocks_logarithms() -> None:
    # GIVEN three blocks whose log rates are -d, 0, d around a mean
    d = 0.01
    [point] = run(steady_launch(0, 1, [0.1 * math.exp(d), 0.1, 0.1 * math.exp(-d)])).points
    # THEN half = t(0.975; 2) * d / sqrt(3), with t = 4.302653
    half = 4.302653 * d / math.sqrt(3)
    got = point.samples_per_s
    assert got is not None
    assert got.low is not None
    assert got.high is not None
    assert math.log(got.high / got.value) == pytest.approx(half, rel=1e-6)
    assert math.log(got.value / got.low) == pytest.approx(half, rel=1e-6)


def test_efficiency_is_against_one_device() -> None:
    # GIVEN 0.1 s per step at 1 device and 0.125 s at 4
    points = run(steady_launch(0, 1, [0.1] * 3), steady_launch(1, 4, [0.125] * 3)).points
    # THEN 4 devices reach 0.8 of 4 x 80 samples/s
    assert [p.devices for p in points] == [1, 4]
    assert points[0].efficiency == Interval(value=1.0, low=1.0, high=1.0)
    assert points[1].efficiency is not None
    assert points[1].efficiency.value == pytest.approx(0.8)
    assert points[1].ideal_samples_per_s == pytest.approx(320.0)


def test_ranks_and_launches_are_told_apart() -> None:
    table = StepTable(2).block("train", [[0.1, 0.3]] * 10).block("train", [[0.1, 0.3]] * 10)
    [point] = run(measured(4, table, round_=1)).points
    # THEN the job's step is the mean over ranks, and each rank has its own rate
    assert point.step_s is not None
    assert point.step_s.value == pytest.approx(0.2)
    first, second = point.ranks
    assert first == RankResult(
        rank=0,
        local_rank=0,
        host="here",
        device="cpu",
        samples_per_s=pytest.approx(80.0),
        solo_step_s=None,
        data_wait_s=pytest.approx(0.01),
    )
    assert second.samples_per_s == pytest.approx(80 / 3)
    assert point.launches == (
        LaunchSummary(
            launch=4,
            round=1,
            status="ok",
            samples_per_s=pytest.approx(80.0),
            steps=20,
            start_s=0.0,
            wall_s=15.0,
            setup_s=1.0,
            warmup_s=2.0,
            measured_s=10.0,
            blocks=(pytest.approx(80.0), pytest.approx(80.0)),
        ),
    )


def test_steps_with_validation_are_left_out_on_all_ranks() -> None:
    # GIVEN a block in which rank 0 validates in one step, which takes 5 s on every rank
    table = StepTable(2).block("train", [0.1] * 9 + [5.0], other_s=[0.0] * 9 + [4.0])
    [point] = run(measured(0, table)).points
    assert point.steps_measured == 9
    assert point.step_s is not None
    assert point.step_s.value == pytest.approx(0.1)


def test_a_job_that_always_saves_keeps_its_steps() -> None:
    table = StepTable(1).block("train", [0.1] * 10, other_s=[1.0] * 6 + [0.0] * 4)
    [point] = run(measured(0, table)).points
    assert point.steps_measured == 10


def test_warmup_is_kept_and_labelled_but_not_aggregated() -> None:
    # GIVEN 7 steps before the first block, which is slow
    table = StepTable(1).warmup(7).block("train", [1.0] * 10)
    for _ in range(9):
        table.block("train", [0.1] * 10)
    analysis = run(measured(0, table))
    [point] = analysis.points
    assert (point.warmup_steps, point.steps_measured) == (17, 90)
    assert len(analysis.steps) == 107
    assert analysis.steps["warmup"].sum() == 17


def test_a_given_warmup_is_taken_as_it_is() -> None:
    table = StepTable(1).warmup(7).block("train", [1.0] * 10 + [0.1] * 90)
    [point] = run(measured(0, table), plan=sweep_plan(warmup_steps=7)).points
    assert (point.warmup_steps, point.steps_measured) == (7, 100)


def test_without_steady_state_there_is_no_number() -> None:
    # GIVEN steps that get slower and slower
    table = StepTable(1)
    for block in range(10):
        table.block("train", [0.1 + 0.001 * (20 * block + i) for i in range(20)])
    [point] = run(measured(0, table)).points
    assert point.status == "failed"
    assert point.error is not None
    assert point.error.startswith("no steady state")
    assert point.samples_per_s is None
    assert point.launches[0].status == "failed"


def test_a_burst_late_in_the_run_is_no_warmup() -> None:
    table = StepTable(1).block("train", [0.1] * 70 + [0.5] * 5 + [0.1] * 25)
    [point] = run(measured(0, table)).points
    assert (point.status, point.steps_measured, point.warmup_steps) == ("ok", 100, 0)


def test_a_point_whose_launches_all_failed_says_why() -> None:
    points = run(steady_launch(0, 1, [0.1] * 3), failed(1, 2), failed(2, 2, round_=1)).points
    assert points[1].status == "failed"
    assert points[1].error == "rank 1 died\nlast line\nlog: logs/rank1.log"
    assert points[1].script_fault
    assert points[1].efficiency is None
    assert [one.status for one in points[1].launches] == ["failed", "failed"]


def test_a_point_whose_launches_all_hung_is_a_timeout() -> None:
    [point] = run(failed(0, 2, status="timeout")).points
    assert (point.status, point.launches[0].status) == ("timeout", "timeout")


def test_a_point_is_ok_where_one_launch_is_and_warns_of_the_others() -> None:
    [point] = run(steady_launch(0, 1, [0.1] * 3), failed(1, 1, round_=1)).points
    assert point.status == "ok"
    assert point.warnings == ("the launch of round 2 is left out: rank 1 died",)


def test_a_count_that_was_only_interrupted_is_no_point() -> None:
    points = run(steady_launch(0, 1, [0.1] * 3), failed(1, 2, status="interrupted")).points
    assert [p.devices for p in points] == [1]


def test_without_one_device_there_is_no_efficiency() -> None:
    analysis = run(steady_launch(0, 2, [0.1] * 3))
    [point] = analysis.points
    assert (point.efficiency, point.ideal_samples_per_s) == (None, None)
    assert analysis.warnings == ("no efficiency: 1 device was not measured; add 1 to --devices",)
    # GIVEN that it failed
    analysis = run(failed(0, 1), steady_launch(1, 2, [0.1] * 3))
    assert analysis.points[1].efficiency is None
    assert analysis.warnings[0].startswith("no efficiency: there is no figure at 1 device")


def test_efficiency_above_105_percent_is_a_suspect_baseline() -> None:
    points = run(steady_launch(0, 1, [0.12] * 3), steady_launch(1, 2, [0.1] * 3)).points
    assert any("suspect the 1-device baseline" in w for w in points[1].warnings)


def test_other_threads_than_set_are_not_comparable() -> None:
    ranks = (RankInfo(rank=0, local_rank=0, host="h", device="cpu", pid=1, threads=4),)
    table = StepTable(1).block("train", [0.1] * 30)
    [point] = run(measured(0, table, ranks=ranks)).points
    assert point.warnings[0].startswith("not comparable: ranks ran 4 threads, 1 were set")


def test_another_batch_per_device_is_named() -> None:
    half = measured(1, StepTable(2, samples=4).block("train", [0.1] * 30))
    analysis = run(steady_launch(0, 1, [0.1] * 3), half)
    # THEN 8 samples at both counts are strong scaling, by the script
    assert analysis.strong_by_script
    assert (
        analysis.points[1]
        .warnings[0]
        .startswith("strong scaling, by the script: its global batch is 8")
    )
    # GIVEN neither the batch per device nor the global batch the same
    third = measured(1, StepTable(2, samples=3).block("train", [0.1] * 30))
    analysis = run(steady_launch(0, 1, [0.1] * 3), third)
    assert not analysis.strong_by_script
    assert analysis.points[1].warnings[0].startswith("batch per device is 3 here and 8 at 1 device")


def test_a_smaller_last_update_of_an_epoch_is_no_other_batch() -> None:
    # GIVEN four batches of 8 per update, and what is left of 10 and of 5 batches in an epoch
    def accumulated(index: int, devices: int, pattern: list[int]) -> MeasuredLaunch:
        launch = measured(index, StepTable(devices).block("train", [0.1] * 30))
        assert launch.steps is not None
        step = launch.steps[:, STEP_COLUMNS.index("step")].astype(int)
        samples = np.array(pattern)[step % len(pattern)]
        launch.steps[:, STEP_COLUMNS.index("samples")] = samples
        return launch

    analysis = run(accumulated(0, 1, [32, 32, 16]), accumulated(1, 2, [32, 8]))
    assert not any("batch" in warning for point in analysis.points for warning in point.warnings)
    # GIVEN that the whole ones are smaller as well
    analysis = run(accumulated(0, 1, [32, 32, 16]), accumulated(1, 2, [20, 8]))
    assert analysis.points[1].warnings[0].startswith("batch per device is 14 here and 32 at 1")


def test_strong_scaling_wants_the_same_global_batch() -> None:
    half = measured(1, StepTable(2, samples=4).block("train", [0.05] * 30))
    plan = sweep_plan(scaling="strong", global_batch=8)
    points = run(steady_launch(0, 1, [0.1] * 3), half, plan=plan).points
    # THEN 160 samples/s at 2 against 2 x 80 is efficiency 1, with no warning
    assert points[1].efficiency is not None
    assert points[1].efficiency.value == pytest.approx(1.0)
    assert points[1].warnings == ()


def test_few_steps_are_said() -> None:
    [point] = run(steady_launch(0, 1, [0.1], steps=5)).points
    assert point.warnings[0].startswith("only 5 steps measured")
    assert point.samples_per_s == Interval(value=pytest.approx(80.0), low=None, high=None)


def test_more_ranks_than_cores_are_oversubscribed_unless_emulated() -> None:
    launches = [steady_launch(0, 1, [0.1] * 3), steady_launch(1, 4, [0.2] * 3)]
    points = run(*launches, cores=2).points
    assert [p.oversubscribed for p in points] == [False, True]
    assert points[1].best_possible_efficiency == 0.5
    # GIVEN the same with an accelerator that is not there
    table = StepTable(4).block("train", [0.2] * 30)
    [point] = run(measured(0, table, loop=replace(LOOP, emulated=True)), cores=2).points
    assert not point.oversubscribed


def test_ranks_with_uneven_batches_are_named() -> None:
    table = StepTable(2).block("train", [0.1] * 30)
    launch = measured(0, table)
    assert launch.steps is not None
    launch.steps[launch.steps[:, 0] == 1, STEP_COLUMNS.index("samples")] = 6
    [point] = run(launch).points
    assert point.warnings[0].startswith("ranks take 6 to 8 samples per step")


def test_steps_that_not_every_rank_measured_are_left_out() -> None:
    launch = measured(0, StepTable(2).block("train", [0.1] * 30))
    assert launch.steps is not None
    torn = MeasuredLaunch(
        plan=launch.plan, outcome=launch.outcome, record=launch.record, steps=launch.steps[:-1]
    )
    [point] = run(torn).points
    assert point.steps_measured == 29
    assert point.warnings[0].startswith("left out 1 train steps that only some ranks measured")


def test_notes_and_an_early_end_become_warnings() -> None:
    table = StepTable(1).block("train", [0.1] * 30)
    [point] = run(measured(0, table, ended_early=True, notes=("a note",))).points
    assert point.warnings[0].startswith("the script ended by itself")
    assert point.warnings[1] == "a note"


def test_a_launch_without_a_train_step_is_a_failed_point() -> None:
    launch = MeasuredLaunch(
        plan=steady_launch(0, 1, [0.1]).plan,
        outcome=outcome(),
        record=launch_record(1),
        steps=StepTable(1).warmup(5).array(),
    )
    [point] = run(launch).points
    assert point.status == "failed"
    assert point.error is not None
    assert point.error.startswith("no train step")


def test_no_launch_at_all_gives_no_point() -> None:
    assert run().points == ()
