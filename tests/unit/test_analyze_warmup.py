"""Warmup found after the fact."""

from __future__ import annotations

import numpy as np
from synthetic import StepTable, measured

from sfbench.analyze.steps import job_steps
from sfbench.analyze.warmup import Labelled, label_warmup, settled
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.steady import Steady


def label(*launches: MeasuredLaunch) -> Labelled:
    steps = step_frame(launches)
    return label_warmup(steps, job_steps(steps))


def test_all_rungs_before_the_cut_are_warmup() -> None:
    # GIVEN a first cycle in which everything is slow
    table = StepTable(2)
    for cycle in range(6):
        slow = 3.0 if cycle == 0 else 1.0
        table.block("cached", [slow] * 10, cycle=cycle)
        table.block("train", [slow] * 10, cycle=cycle)
    found = label(measured(0, table))
    warm = found.steps.loc[found.steps["warmup"], ["rung", "cycle"]].drop_duplicates()
    # THEN all before the second train block is warmup, on every rank, and nothing is lost
    assert found.unsteady == ()
    assert sorted(map(tuple, warm.to_numpy().tolist())) == [
        ("cached", 0),
        ("cached", 1),
        ("train", 0),
    ]
    assert len(found.steps) == 240
    assert found.job["warmup"].sum() == 30


def test_each_launch_has_its_own_warmup() -> None:
    slow_start = StepTable(1).block("train", [2.0] * 10 + [1.0] * 50)
    steady = StepTable(1).block("train", [1.0] * 60)
    found = label(measured(3, slow_start), measured(5, steady))
    by_launch = found.steps.groupby("launch")["warmup"].sum()
    assert by_launch.to_dict() == {3: 10, 5: 0}


def test_an_unsteady_launch_is_named() -> None:
    drifting = StepTable(1).block("train", list(np.linspace(1.0, 3.0, 100)))
    steady = StepTable(1).block("train", [1.0] * 60)
    assert label(measured(3, drifting), measured(5, steady)).unsteady == (3,)


def test_too_few_steps_are_taken_as_they_are() -> None:
    assert settled(np.array([9.0] * 5 + [1.0] * 19)) == Steady(cut=0, found=True)


def test_stalls_at_epoch_starts_belong_to_the_job() -> None:
    # GIVEN a step of ten times the length every 20 steps
    steps = np.ones(200)
    steps[::20] = 10.0
    assert settled(steps) == Steady(cut=0, found=True)


def test_a_lasting_change_beyond_half_is_no_steady_state() -> None:
    noise = 1 + 0.02 * np.random.default_rng(4).standard_normal(200)
    noise[120:] *= 0.8
    assert not settled(noise).found


def test_healthy_noise_is_steady() -> None:
    rng = np.random.default_rng(6)
    series = [np.exp(0.1 * rng.standard_normal(n)) for n in (30, 60, 200) for _ in range(100)]
    assert sum(not settled(one).found for one in series) <= 3
