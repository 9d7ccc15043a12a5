"""The fixture ``scaling`` in test files of other people; sweeps and gates are made up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gates import SEEN, SUBJECT, Machine, compare, judge
from test_gate_inputs import GOLDEN, eight

from sfbench import api
from sfbench.collect.result import write_result
from sfbench.common.errors import MeasureError, ResultError, ScriptError, UsageError
from sfbench.common.schema import Share
from sfbench.gating.conclusion import Subject, compared_report, unmeasured_report
from sfbench.gating.gate_report import GateOptions, Verdict
from sfbench.pytest_plugin import MeasuredClock, ScalingFixture, _figures
from sfbench.report.notebook import Results, load

EIGHT = eight()
assert EIGHT.global_batch is not None
assert EIGHT.efficiency is not None


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """A stored sweep whose blocks at 8 devices are known; 16 devices failed."""
    folder = tmp_path / "stored"
    folder.mkdir()
    points = (*GOLDEN.points[:3], EIGHT, *GOLDEN.points[4:])
    write_result(folder, replace(GOLDEN, points=points))
    return load(folder)


Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, results: Results) -> Run:
    """Runs a test file in a folder of its own; its sweeps give the stored one."""

    def sweep(target: str, args: tuple[str, ...] = (), **options: Any) -> Results:
        assert options["output"].is_dir()
        return results

    def gate(target: str, args: tuple[str, ...] = (), **options: Any) -> Any:
        machine = Machine([2560.0, 2561.0], [1970.0, 1971.0])
        seen = replace(SEEN, candidate_samples_per_step=64.0)
        return compared_report(SUBJECT, judge(), compare(machine), seen)

    # Where these tests are run by xdist, the run inside is one that is not.
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(api, "sweep", sweep)
    monkeypatch.setattr(api, "gate", gate)

    def run(body: str, *words: str) -> pytest.RunResult:
        pytester.makepyfile(f"def test_it(scaling):\n    {body}\n")
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", *words)

    return run


SWEEP = 'assert 0 < scaling.sweep("train.py", devices=[1, 2]).at(8).efficiency.low < 1'


def saved(folder: Path) -> dict[str, Any]:
    """The one benchmark that was saved."""
    (benchmark,) = json.loads((folder / "out.json").read_text())["benchmarks"]
    found: dict[str, Any] = benchmark
    return found


def test_a_sweep_s_figures_go_through_pytest_benchmark(run: Run, pytester: pytest.Pytester) -> None:
    ended = run(SWEEP, "--benchmark-json=out.json")
    ended.assert_outcomes(passed=1)
    ended.stdout.fnmatch_lines(["*test_it*"])
    told = saved(pytester.path)
    # THEN a round is a block at 8 devices: four launches of three
    assert told["stats"]["rounds"] == 12
    assert told["stats"]["max"] == pytest.approx((EIGHT.global_batch or 0) / 2400)
    assert told["stats"]["min"] == pytest.approx((EIGHT.global_batch or 0) / 2600)
    extra = told["extra_info"]
    assert (extra["devices"], extra["emulated"]) == (8, GOLDEN.emulated)
    assert extra["efficiency"] == EIGHT.efficiency.value if EIGHT.efficiency else None
    assert set(extra["time_share"]) == {
        "compute", "host", "straggler", "jitter", "communication", "data", "stalls",
    }  # fmt: skip
    assert [point["devices"] for point in extra["points"]] == [1, 2, 4, 8]


def test_shares_that_are_no_figures_are_not_saved() -> None:
    # GIVEN a share without an interval, one known no better than 25 points, one known well
    assert EIGHT.time_share is not None
    shares = replace(
        EIGHT.time_share,
        data=Share(value=0.28, low=None, high=None),
        host=Share(value=0.30, low=0.05, high=0.55),
        compute=Share(value=0.76, low=0.75, high=0.77),
    )
    point = replace(EIGHT, time_share=shares)
    # WHEN
    told = _figures(GOLDEN, [point])["time_share"]
    # THEN
    assert (told["data"], told["host"], told["compute"]) == (None, None, 0.76)


def test_two_saved_runs_compare(run: Run, pytester: pytest.Pytester) -> None:
    for _ in "ab":
        run(SWEEP, "--benchmark-autosave").assert_outcomes(passed=1)
    command = Path(sys.executable).with_name("pytest-benchmark")
    done = subprocess.run(
        [command, "compare"], cwd=pytester.path, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("test_it") == 2


def test_a_gate_s_figures_go_through_it_as_well(run: Run, pytester: pytest.Pytester) -> None:
    body = 'assert scaling.gate("train.py", base="main").verdict == "fail"'
    run(body, "--benchmark-json=out.json").assert_outcomes(passed=1)
    told = saved(pytester.path)
    assert told["extra_info"]["verdict"] == "fail"
    assert told["extra_info"]["emulated"] is False
    shares = told["extra_info"]["time_share"]
    assert (shares["base"]["data"], shares["candidate"]["data"]) == (0.02, 0.2455)
    assert told["extra_info"]["change"]["value"] == pytest.approx(-0.23, abs=0.01)
    assert told["stats"]["max"] == pytest.approx(64 / 1970)


@pytest.mark.parametrize(
    ("verdict", "error"), [("broken", ScriptError), ("not-measured", MeasureError)]
)
def test_a_gate_that_gave_nothing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict: Verdict, error: type[Exception]
) -> None:
    subject = Subject(target="train", against="main")
    report = unmeasured_report(subject, GateOptions(), verdict, "candidate is broken: no codec")
    monkeypatch.setattr(api, "gate", lambda *args, **options: report)
    with pytest.raises(error, match="no codec"):
        ScalingFixture(tmp_path, MeasuredClock()).gate("train.py", base="main")


def test_a_second_sweep_in_a_test_gives_its_result(run: Run) -> None:
    run(f"{SWEEP}; {SWEEP}").assert_outcomes(passed=1)


def test_a_test_of_scaling_is_a_benchmark(run: Run) -> None:
    run(SWEEP, "--benchmark-skip").assert_outcomes(skipped=1)
    run(SWEEP, "--benchmark-only").assert_outcomes(passed=1)
    run(SWEEP, "--benchmark-disable").assert_outcomes(passed=1)


def test_without_pytest_benchmark_it_works_as_well(run: Run) -> None:
    run(SWEEP, "-p", "no:benchmark").assert_outcomes(passed=1)


def test_a_count_without_figures_is_an_error(results: Results) -> None:
    assert results.at(8) == EIGHT
    with pytest.raises(ResultError, match="no point at 3 devices: 1, 2, 4, 8, 16 were measured"):
        results.at(3)
    with pytest.raises(MeasureError, match="16 devices: "):
        results.at(16)


def test_a_gate_needs_one_thing_to_compare_with() -> None:
    with pytest.raises(UsageError, match="one of base and baseline"):
        api.gate("train.py")


def test_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, sfbench.pytest_plugin; print({'torch', 'pandas', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
