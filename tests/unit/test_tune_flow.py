"""A tune from diagnosis to answer, over launches whose rates are given."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.collect.result import load_result
from sfbench.common.errors import MeasureError, ScriptError
from sfbench.common.schema import Diagnosis, Interval, SweepResult
from sfbench.plan.options import TuneSettings
from sfbench.plan.sweep_plan import Target
from sfbench.protocol.evidence import Loader, Model, RankEvidence
from sfbench.tuning.board import LaunchValue
from sfbench.tuning.confirmation import CONFIRM_ROUNDS
from sfbench.tuning.launch_watch import OutOfTime
from sfbench.tuning.trial_launches import TrialLaunches
from sfbench.tuning.tried import TriedSettings
from sfbench.tuning.tune_observer import SilentTuneObserver
from sfbench.tuning.tune_page import render_tune_page
from sfbench.tuning.tune_report import TuneReport, to_json
from sfbench.tuning.tune_text import confirmed, render_tune_markdown, render_tune_text
from sfbench.tuning.tuner import TuneJob, Tuning
from sfbench.tuning.verdict import reported
from tests.unit.synthetic import LOOP, launch_plan, launch_record, machine, outcome, sweep_plan

GOLDEN = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"
SCRIPT = """\
loader = DataLoader(data)
model = DistributedDataParallel(net, find_unused_parameters=True)
"""
Rate = Callable[[TriedSettings], float | str]


class Pretended:
    """Launches with a little noise; ``gain`` tells the ratio that settings give, or a failure."""

    def __init__(self, gain: Rate, *, noise: float = 0.01) -> None:
        self._gain = gain
        self._rng = np.random.default_rng(7)
        self._noise = noise
        self.loader_lines: tuple[str, ...] = ()
        self.usual_s: float | None = None
        self.taken_bytes: int | None = 2**20
        self.made: list[str] = []

    def look(self) -> MeasuredLaunch:
        loop = replace(LOOP, loader_workers=0, wrapper="ddp", find_unused_parameters=True)
        model = Model(
            line="train.py:9", wrapped="train.py:2", looks_for_unused=True, looked=9, search_s=0.004
        )
        loader = Loader(
            line="train.py:1", trains=True, length=8, dataset="D", dataset_size=64,
            dataset_digest=1, sampler="DistributedSampler", takes_all=False, shuffles=True,
            has_set_epoch=True,
        )  # fmt: skip
        seen = RankEvidence(
            rank=0, host="h", threads=1, peers=(0, 1), loaders=(loader,), models=(model,)
        )
        record = launch_record(2, loop=loop, evidence=(seen,))
        return MeasuredLaunch(
            plan=launch_plan(0, 2), outcome=outcome(), record=record, evidence=(seen,)
        )

    def base(self, round_: int) -> LaunchValue:
        self.made.append("as it is")
        return self._value(1.0)

    def trial(self, settings: TriedSettings, round_: int) -> LaunchValue | str:
        self.made.append(str(settings))
        gain = self._gain(settings)
        return gain if isinstance(gain, str) else self._value(gain)

    def _value(self, ratio: float) -> LaunchValue:
        rate = 100 * ratio * math.exp(self._noise * self._rng.normal())
        return LaunchValue(samples_per_s=rate, cached_samples_per_s=None)


@pytest.fixture
def result() -> SweepResult:
    """A job that waits for a loader of its own, at 2 devices, with launches of 2 s."""
    golden = load_result(GOLDEN)
    point = replace(
        next(p for p in golden.points if p.status == "ok"),
        devices=2,
        step_s=Interval(value=0.040, low=0.039, high=0.041),
    )
    found = Diagnosis(
        id="data-loader-starvation",
        devices=2,
        severity="bottleneck",
        rank=None,
        regain=Interval(value=0.5, low=0.4, high=0.6),
        evidence={
            "limit": "no-workers",
            "step_from_memory_s": 0.010,
            "data_wait_s_per_step": 0.030,
        },
        advice=(),
    )
    return replace(golden, points=(point,), diagnoses=(found,))


def tuned(
    result: SweepResult, folder: Path, launches: Pretended, *, budget: float = 1e6
) -> TuneReport:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    target = Target(name="train", script=script, is_workload=False)
    job = TuneJob(
        plan=sweep_plan(target=target),
        machine=machine(8),
        devices=2,
        asked=TuneSettings(budget=max(30, min(budget, 600_000))),
        command="sfbench tune",
    )
    tuning = Tuning(
        job, cast(TrialLaunches, launches), SilentTuneObserver(), time.monotonic() + budget
    )
    report = reported(tuning.run(result), target, result=None)
    assert script.read_text() == SCRIPT
    return report


def faster_with(**gains: float | str) -> Rate:
    """Ratios of arguments by name; all together their product."""

    def gain(settings: TriedSettings) -> float | str:
        ratio = 1.0
        for name, value in (*settings.loader, *settings.model):
            found = gains.get(f"{name}_{value}", gains.get(name, 1.0))
            if isinstance(found, str):
                return found
            ratio *= found
        return ratio

    return gain


def test_what_helps_is_confirmed_with_its_lines(result: SweepResult, tmp_path: Path) -> None:
    launches = Pretended(faster_with(num_workers=2.0, find_unused_parameters=1.1))

    found = tuned(result, tmp_path, launches)

    assert found.verdict == "gain"
    assert found.best is not None
    assert found.best.settings == (
        "num_workers=3, persistent_workers=True, find_unused_parameters=False"
    )
    assert found.best.gain.low <= 1.2 <= found.best.gain.high
    assert found.best.pairs == CONFIRM_ROUNDS
    assert [one.line for one in found.best.lines] == ["train.py:1", "train.py:2"]
    assert "+loader = DataLoader(data, num_workers=3, persistent_workers=True)" in (
        found.best.lines[0].diff
    )
    assert launches.loader_lines == ("train.py:1",)


def test_every_trial_is_a_row_with_prediction_and_measurement(
    result: SweepResult, tmp_path: Path
) -> None:
    found = tuned(result, tmp_path, Pretended(faster_with(num_workers=2.0)))

    rows = {row.settings: row for row in found.trials}
    assert rows["num_workers=3, persistent_workers=True"].predicted_gain == pytest.approx(3.0)
    assert rows["num_workers=6, persistent_workers=True"].status == "gain"
    assert rows["find_unused_parameters=False"].status == "no-gain"
    assert all(row.gain is not None and row.gain.low <= row.gain.high for row in found.trials)


def test_a_trial_that_fails_is_a_row_and_the_others_go_on(
    result: SweepResult, tmp_path: Path
) -> None:
    why = "rank 1: RuntimeError: out of memory"

    found = tuned(result, tmp_path, Pretended(faster_with(num_workers_6=why, num_workers_3=1.5)))

    failed = [row for row in found.trials if row.status == "failed"]
    assert [row.why for row in failed] == [why]
    assert found.best is not None
    assert found.best.settings == "num_workers=3, persistent_workers=True"
    assert why in render_tune_text(found, 100)


def test_nothing_helps_is_an_answer(result: SweepResult, tmp_path: Path) -> None:
    launches = Pretended(faster_with())

    found = tuned(result, tmp_path, launches)

    assert (found.verdict, found.best) == ("nothing-helps", None)
    assert found.headline.startswith("Nothing helps at 2 devices: none of 4 settings")


def test_together_they_may_fail_and_the_best_one_is_confirmed_alone(
    result: SweepResult, tmp_path: Path
) -> None:
    def gain(settings: TriedSettings) -> float | str:
        if settings.loader and settings.model:
            return "rank 0: they do not go together"
        return 1.5 if settings.loader else 1.3

    found = tuned(result, tmp_path, Pretended(gain))

    assert found.best is not None
    assert found.best.settings == "num_workers=3, persistent_workers=True"


def test_what_fresh_launches_do_not_show_is_not_promised(
    result: SweepResult, tmp_path: Path
) -> None:
    launches = Pretended(lambda settings: 1.5)
    trial = launches.trial
    fresh = Pretended(lambda settings: 1.0)

    def by_round(settings: TriedSettings, round_: int) -> LaunchValue | str:
        return (trial if round_ < 1000 else fresh.trial)(settings, round_)

    launches.trial = by_round  # type: ignore[method-assign]

    found = tuned(result, tmp_path, launches)

    assert (found.verdict, found.best) == ("inconclusive", None)
    assert "fresh launches gave" in found.unconfirmed


def test_after_ctrl_c_what_there_is_is_told(result: SweepResult, tmp_path: Path) -> None:
    launches = Pretended(faster_with(num_workers=2.0))

    def interrupted(settings: TriedSettings) -> float | str:
        if len(launches.made) > 20:
            raise KeyboardInterrupt
        return 1.5

    launches._gain = interrupted

    found = tuned(result, tmp_path, launches)

    assert found.interrupted
    assert found.verdict == "inconclusive"
    assert all(row.rounds >= 3 for row in found.trials)


def test_without_time_few_are_tried_and_the_others_say_so(
    result: SweepResult, tmp_path: Path
) -> None:
    found = tuned(result, tmp_path, Pretended(faster_with(num_workers=2.0)), budget=30.0)

    tried = [row for row in found.trials if row.status != "not-tried"]
    left = [row for row in found.trials if row.status == "not-tried"]
    assert len(tried) == 1
    assert all("budget" in row.why for row in left)


def test_what_runs_when_the_budget_ends_is_the_last(result: SweepResult, tmp_path: Path) -> None:
    # GIVEN a job as it is whose 9th launch runs into the end
    launches = Pretended(faster_with(num_workers=2.0))
    usual = launches.base

    def late(round_: int) -> LaunchValue:
        if launches.made.count("as it is") == 8:
            raise OutOfTime
        return usual(round_)

    launches.base = late  # type: ignore[method-assign]

    found = tuned(result, tmp_path, launches)

    # THEN 6 rounds found the gain, and 2 fresh ones cannot confirm it
    assert found.verdict == "inconclusive"
    assert [row.status for row in found.trials if "num_workers" in row.settings][:1] == ["gain"]
    assert "too few" in found.unconfirmed
    assert {row.memory_bytes for row in found.trials} == {2**20}


def test_a_budget_that_ends_before_any_trial_says_so(result: SweepResult, tmp_path: Path) -> None:
    launches = Pretended(faster_with())

    def late() -> MeasuredLaunch:
        raise OutOfTime

    launches.look = late  # type: ignore[method-assign]

    with pytest.raises(MeasureError, match=r"before anything was tried\. Give more --budget"):
        tuned(result, tmp_path, launches)


def test_no_round_begins_that_the_budget_does_not_last_for(
    result: SweepResult, tmp_path: Path
) -> None:
    launches = Pretended(faster_with(num_workers=2.0))

    found = tuned(result, tmp_path, launches, budget=0.5)

    assert launches.made == []
    assert found.verdict == "inconclusive"
    assert {row.status for row in found.trials} <= {"unsettled", "not-tried"}


def test_a_job_that_fails_as_it_is_ends_the_tune(result: SweepResult, tmp_path: Path) -> None:
    launches = Pretended(faster_with())

    def broken(round_: int) -> LaunchValue:
        raise ScriptError("rank 0: gone")

    launches.base = broken  # type: ignore[method-assign]

    with pytest.raises(ScriptError, match="gone"):
        tuned(result, tmp_path, launches)


def test_the_answer_as_text_markdown_and_json(result: SweepResult, tmp_path: Path) -> None:
    found = tuned(result, tmp_path, Pretended(faster_with(num_workers=2.0)))

    text, page = render_tune_text(found, 100), render_tune_markdown(found)
    html = " ".join(render_tune_page(found, result).split())
    assert found.best is not None
    for told in (found.headline, confirmed(found.best), "+loader = DataLoader(data, num_workers="):
        assert told in html
    for trial in found.trials:
        assert f"{trial.settings}</th>" in html
    assert html.index("What was tried") < html.index("Where the time goes")
    document: dict[str, Any] = json.loads(to_json(found))

    assert text.splitlines()[0] == found.headline
    assert "train.py:1: DataLoader: num_workers=3, persistent_workers=True" in text
    assert "```diff" in page
    assert page.count("| no gain |") == text.count("no gain") == 2
    assert document["schema"] == 1
    assert document["best"]["gain"]["low"] > 0
    assert max(map(len, render_tune_text(found, 60).splitlines())) < 100
