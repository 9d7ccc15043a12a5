"""Options, settings and the machine become a plan, and that launches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfbench.common.errors import UsageError
from sfbench.common.schema import LADDER, RankJob
from sfbench.plan import machine as machine_module
from sfbench.plan.machine import Machine
from sfbench.plan.options import Settings
from sfbench.plan.planner import (
    best_possible_efficiency,
    make_plan,
    oversubscribed,
    pinning,
)
from sfbench.plan.rounds import Launched, expected_s, next_launch
from sfbench.plan.settings import load_settings
from sfbench.plan.sweep_plan import LaunchPlan, SweepPlan, Target
from sfbench.plan.targets import resolve_target, workloads

Cost = Callable[[LaunchPlan], Launched]
NOW = datetime(2026, 3, 1, 12, 30, 5)
TWO_CORES = Machine(cores=(0, 1), quota=None, gpus=())
TARGET = Target(name="train", script=Path("/x/train.py"), is_workload=False)


def plan(machine: Machine = TWO_CORES, **options: Any) -> SweepPlan:
    return make_plan(Settings(**options), TARGET, machine, NOW)


def test_defaults() -> None:
    made = plan()
    assert made.devices == (1, 2, 4, 8)
    assert made.device_type == "cpu"
    assert made.rungs == LADDER
    assert made.name == "train-20260301-123005"
    assert made.threads_per_device == 1


@pytest.mark.parametrize(
    ("cores", "devices", "threads"), [(2, "1,2,4,8", 1), (16, "1,2,4", 4), (16, "1", 16)]
)
def test_threads_per_device_are_the_cores_shared_by_the_largest_count(
    cores: int, devices: str, threads: int
) -> None:
    machine = replace(TWO_CORES, cores=tuple(range(cores)))
    assert plan(machine, devices=devices).threads_per_device == threads


def test_a_quota_counts_like_missing_cores() -> None:
    machine = Machine(cores=tuple(range(16)), quota=4.0, gpus=())
    made = plan(machine, devices="1,2")
    assert made.threads_per_device == 2
    assert pinning(made, 2, machine) is None


def test_ranks_are_pinned_where_the_largest_count_has_cores_and_then_at_all_counts() -> None:
    machine = replace(TWO_CORES, cores=(0, 1, 4, 5))
    made = plan(machine, devices="1,2")
    assert pinning(made, 1, machine) == ((0, 1),)
    assert pinning(made, 2, machine) == ((0, 1), (4, 5))
    assert pinning(plan(devices="1,2,4"), 1, TWO_CORES) is None


def test_more_devices_than_cores_run_and_are_marked() -> None:
    made = plan()
    assert [oversubscribed(made, n, TWO_CORES) for n in made.devices] == [False, False, True, True]
    assert best_possible_efficiency(made, 8, TWO_CORES) == 0.25
    assert best_possible_efficiency(made, 1, TWO_CORES) == 1.0


def test_gpus_are_taken_where_there_are_any() -> None:
    machine = replace(TWO_CORES, gpus=("H200",) * 8)
    made = plan(machine)
    assert made.device_type == "cuda"
    assert not oversubscribed(made, 8, machine)
    assert pinning(made, 8, machine) is None
    assert plan(machine, device="cpu").device_type == "cpu"


def test_the_emulated_workload_runs_on_the_host_whatever_there_is() -> None:
    machine = replace(TWO_CORES, gpus=("H200",))
    made = make_plan(Settings(devices=(1, 8)), resolve_target("emulated"), machine, NOW)
    assert made.device_type == "cpu"


@pytest.mark.parametrize(
    ("gpus", "options", "words"),
    [
        (0, {"device": "cuda"}, "no GPU"),
        (2, {"devices": "1,2,4"}, "asks for 4 devices, but 2 GPU"),
        (0, {"scaling": "strong"}, "--global-batch"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(
    gpus: int, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        plan(replace(TWO_CORES, gpus=("H200",) * gpus), **options)


def make_launches(made: SweepPlan, machine: Machine, cost: Cost | None = None) -> list[LaunchPlan]:
    """All launches of a sweep in which each costs and brings what ``cost`` says."""
    launches: list[LaunchPlan] = []
    done: list[Launched] = []
    while launch := next_launch(made, machine, done):
        launches.append(launch)
        bare = Launched(devices=launch.devices, round=launch.round, ok=True)
        done.append(cost(launch) if cost else bare)
    return launches


def short(launch: LaunchPlan, *, starting_s: float = 1.0, at_least_s: float = 0.0) -> Launched:
    """A launch that takes its time and some more to start; rates scatter by 10 %."""
    measured_s = max(at_least_s, launch.seconds)
    return Launched(
        devices=launch.devices,
        round=launch.round,
        ok=True,
        measured_s=measured_s,
        wall_s=measured_s + starting_s,
        log_rate=0.1 * (-1) ** launch.round,
    )


def test_many_short_launches_share_the_budget() -> None:
    launches = make_launches(plan(devices="1,2", seconds=12), TWO_CORES, short)
    assert Counter(x.devices for x in launches) == {1: 8, 2: 8}
    assert sum(x.seconds for x in launches if x.devices == 2) == pytest.approx(12)
    assert [x.devices for x in launches[:4]] == [1, 2, 2, 1]


def test_where_starting_is_dear_fewer_launches_measure_longer() -> None:
    launches = make_launches(
        plan(devices="2", seconds=12), TWO_CORES, partial(short, starting_s=3.0)
    )
    assert len(launches) == 4
    assert sum(x.seconds for x in launches) == pytest.approx(12)


def test_slow_steps_do_not_multiply_the_budget() -> None:
    # GIVEN steps so slow that no launch takes less than 6 of 12 s
    launches = make_launches(
        plan(devices="1,2", seconds=12), TWO_CORES, partial(short, at_least_s=6.0)
    )
    assert Counter(x.devices for x in launches) == {1: 3, 2: 3}


def test_launches_that_measure_longer_than_planned_are_fewer() -> None:
    # GIVEN cycles of 2.2 s where 1.6 s are planned, as at 1 device beside slower counts
    launches = make_launches(
        plan(devices="1", seconds=13), TWO_CORES, partial(short, at_least_s=2.2, starting_s=1.4)
    )
    assert 5 <= len(launches) <= 6
    assert sum(short(x, at_least_s=2.2).measured_s for x in launches) <= 1.1 * 13


def test_a_sweep_ends_when_it_was_announced_to() -> None:
    # GIVEN launches of which later ones take longer than the first of their count told
    made = plan(devices="1,2,4,8", seconds=13)

    def cost(launch: LaunchPlan) -> Launched:
        longer = 3.0 if launch.round else 0.0
        return short(launch, at_least_s=1.6 + longer, starting_s=1.6 + longer)

    launches = make_launches(made, TWO_CORES, cost)

    spent_s = sum(cost(launch).wall_s for launch in launches)
    assert spent_s <= 1.05 * expected_s(made)
    assert min(Counter(x.devices for x in launches).values()) >= 3


def test_time_goes_to_the_count_whose_interval_needs_it() -> None:
    # GIVEN launches that agree at 1 device and scatter at 2
    def cost(launch: LaunchPlan) -> Launched:
        return replace(short(launch), log_rate=0.0) if launch.devices == 1 else short(launch)

    counts = Counter(x.devices for x in make_launches(plan(devices="1,2"), TWO_CORES, cost))
    # THEN 1 device ends at the look, and 2 devices get what it leaves
    assert counts[1] == 6
    assert counts[2] > 8


def test_what_is_left_goes_to_the_widest_interval_in_points() -> None:
    # GIVEN 2 devices that scatter by 6 % at an efficiency of 90 %, and 8 by 10 % at one of 20 %
    scatter = {1: 0.0, 2: 0.06, 8: 0.10}
    rate = {1: 1.0, 2: 2 * 0.9, 8: 8 * 0.2}

    def cost(launch: LaunchPlan) -> Launched:
        n = launch.devices
        log_rate = math.log(rate[n]) + scatter[n] * (-1) ** launch.round
        return replace(short(launch), log_rate=log_rate)

    counts = Counter(x.devices for x in make_launches(plan(devices="1,2,8"), TWO_CORES, cost))

    assert counts[2] > counts[8] >= 8


def test_a_count_that_only_fails_is_tried_once() -> None:
    def cost(launch: LaunchPlan) -> Launched:
        return replace(short(launch), ok=launch.devices == 1, log_rate=None)

    counts = Counter(x.devices for x in make_launches(plan(devices="1,2"), TWO_CORES, cost))
    assert counts[2] == 1
    assert counts[1] >= 8


def test_counts_are_visited_in_turn_there_and_back_again() -> None:
    launches = make_launches(plan(rounds=2, devices="1,2,4", seconds=9), TWO_CORES)
    assert [(x.round, x.devices) for x in launches] == [
        (0, 1), (0, 2), (0, 4), (1, 4), (1, 2), (1, 1),
    ]  # fmt: skip
    assert {x.seconds for x in launches} == {4.5}
    assert [x.index for x in launches] == list(range(6))


@given(
    rounds=st.integers(1, 6),
    devices=st.lists(st.integers(1, 64), min_size=1, max_size=6, unique=True),
)
def test_every_count_comes_once_per_round(rounds: int, devices: list[int]) -> None:
    launches = make_launches(plan(rounds=rounds, devices=tuple(devices)), TWO_CORES)
    for round_ in range(rounds):
        assert sorted(x.devices for x in launches if x.round == round_) == sorted(devices)


def test_settings_of_the_project_hold_where_the_command_line_is_silent(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.sfbench]\ndevices = [1, 2]\nseconds = 5\nthreads-per-device = 3\nwarmup = "20"\n'
    )
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    settings = load_settings({"seconds": 7.0, "rounds": None}, inner)
    assert settings.devices == (1, 2)
    assert settings.seconds == 7.0
    assert settings.threads_per_device == 3
    assert settings.warmup == 20


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.sfbench]\nsecond = 5\n", "second = 5"),
        ("[tool.sfbench]\ndevices = [0]\n", "devices"),
        ("[tool.sfbench]\nprecision = 2\n", "precision = 2"),
        ("[tool.sfbench\n", "cannot be read"),
        ("[tool]\nsfbench = 3\n", "not a table"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        load_settings({}, tmp_path)
    assert "pyproject.toml" in str(caught.value)


@pytest.mark.parametrize(
    "option",
    [
        {"devices": "1,x"}, {"devices": ""}, {"device": "tpu"}, {"scaling": "odd"},
        {"warmup": "some"}, {"warmup": -1}, {"seconds": 0}, {"rounds": 0}, {"name": "a/b"},
        {"rungs": "solo"}, {"global_batch": 0}, {"timeout": -1},
    ],
)  # fmt: skip
def test_wrong_options_are_named(tmp_path: Path, option: dict[str, Any]) -> None:
    name = next(iter(option)).replace("_", "-")
    with pytest.raises(UsageError, match=f"command line: --{name}"):
        load_settings(option, tmp_path)


def test_targets_are_workloads_or_files(tmp_path: Path) -> None:
    assert resolve_target("vision").is_workload
    assert {w.name for w in workloads()} >= {"vision", "emulated"}
    script = tmp_path / "train.py"
    script.write_text("pass")
    target = resolve_target(str(script), ("--lr", "1"))
    assert (target.name, target.script, target.args) == ("train", script, ("--lr", "1"))
    with pytest.raises(UsageError, match=r"nothing\.py: there is no such file"):
        resolve_target("nothing.py")
    with pytest.raises(UsageError, match="is a folder"):
        resolve_target(str(tmp_path))


def test_a_target_may_be_a_module_or_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "job" / "inner"
    inner.mkdir(parents=True)
    for path in (inner.parent / "__init__.py", inner / "__main__.py", inner / "train.py"):
        path.write_text("raise RuntimeError('imported')")
    monkeypatch.chdir(tmp_path)

    module, package = (resolve_target(f"-m job.inner{rest}") for rest in (".train", ""))

    assert (module.name, module.script) == ("job.inner.train", inner / "train.py")
    assert (package.name, package.script) == ("job.inner", inner / "__main__.py")
    assert (module.module, package.module) == ("job.inner.train", "job.inner.__main__")
    assert (module.typed, package.typed) == ("-m job.inner.train", "-m job.inner")
    for job in (module, package):
        rank = RankJob(script=str(job.script), module=job.module, launch_dir="")
        assert rank.root == str(tmp_path)


@pytest.mark.parametrize("name", ["job.none", "none.train", "a b", "", "json.nothing", "."])
def test_a_module_that_is_not_there_is_an_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job").mkdir()
    with pytest.raises(UsageError, match=r"there is no such module"):
        resolve_target(f"-m {name}")


@pytest.mark.parametrize(("text", "quota"), [("max 100000", None), ("150000 100000", 1.5)])
def test_cpu_quota(tmp_path: Path, text: str, quota: float | None) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(text)
    assert machine_module._quota(file) == quota
    assert machine_module._quota(tmp_path / "missing") is None
