"""What stands on stderr while launches run, where it is no terminal."""

from __future__ import annotations

import io

from rich.console import Console

from sfbench.cli.launch_line import FIRST_START
from sfbench.cli.progress import TerminalObserver
from sfbench.cli.tune_progress import TrialObserver
from tests.unit.synthetic import launch_plan, outcome, sweep_plan


def test_the_first_launch_of_a_sweep_says_what_it_waits_for() -> None:
    told = io.StringIO()
    with TerminalObserver(sweep_plan(), Console(file=told, width=200)) as observer:
        for index in (0, 1):
            observer.launch_started(launch_plan(index, 2, index))
            observer.launch_ended(launch_plan(index, 2, index), outcome())
    lines = told.getvalue().splitlines()
    assert lines[0] == f"devices 2, round 1: {FIRST_START}"
    assert [FIRST_START in line for line in lines] == [True, False, False]


def test_a_tune_names_the_job_as_it_is_and_trials() -> None:
    told = io.StringIO()
    with TrialObserver(Console(file=told, width=200)) as observer:
        for index, name in enumerate(("the job as it is", "num_workers=2")):
            observer.trial_started(name, 0)
            observer.launch_started(launch_plan(index, 2))
            observer.launch_ended(launch_plan(index, 2), outcome())
    assert [line.partition(":")[0] for line in told.getvalue().splitlines()] == [
        "the job as it is", "the job as it is", "trial of num_workers=2",
    ]  # fmt: skip
