"""What a gate starts from: patterns of paths, stored results, fingerprints, imported modules."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfbench.collect.result import load_result
from sfbench.common.errors import ResultError, ScriptError, UsageError
from sfbench.common.schema import LaunchSummary, ModuleFile, Point, Share, SweepResult
from sfbench.gating.checkouts.arms import Arm
from sfbench.gating.checkouts.imports import check_code, check_different
from sfbench.gating.checkouts.paths import idle, rooted, touched
from sfbench.gating.fingerprint import differences, of_result
from sfbench.gating.side_launches import in_checkout
from sfbench.gating.stored import stored_base
from sfbench.plan.sweep_plan import SweepPlan, Target
from sfbench.report.comparison import compare

GOLDEN = load_result(Path(__file__).parents[1] / "golden" / "sweep-schema1.json")


# ---- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("transforms.py", "transforms.py", True),
        ("transforms.py", "src/transforms.py", True),
        ("transforms.py", "my_transforms.py", False),
        ("data/**", "data/a/b.py", True),
        ("data/**", "data", False),
        ("data/**", "metadata/a.py", False),
        ("data", "data/a.py", True),
        ("data/*.py", "data/a.py", True),
        ("data/*.py", "data/a/b.py", False),
        ("src/**/aug.py", "src/aug.py", True),
        ("src/**/aug.py", "src/a/b/aug.py", True),
        ("**/aug.py", "aug.py", True),
        ("./data/?.py", "data/a.py", True),
        ("a+b.py", "a+b.py", True),
    ],
)
def test_patterns(pattern: str, path: str, matches: bool) -> None:
    assert touched(["README.md", path], [pattern]) is matches


# ---- stored results ------------------------------------------------------------------------------


def launch(number: int, *blocks: float) -> LaunchSummary:
    return LaunchSummary(
        launch=number, round=number, status="ok", samples_per_s=1.0, steps=10, start_s=0.0,
        wall_s=1.0, setup_s=0.0, warmup_s=0.0, measured_s=1.0, blocks=blocks,
    )  # fmt: skip


def eight() -> Point:
    point = GOLDEN.points[3]
    assert point.devices == 8
    launches = tuple(launch(n, 2400.0, 2500.0 + n, 2600.0) for n in range(4))
    return replace(point, launches=tuple(replace(o, cached_blocks=(3100.0,)) for o in launches))


def without_control(point: Point) -> Point:
    return replace(point, launches=tuple(replace(o, cached_blocks=()) for o in point.launches))


def with_eight(point: Point) -> SweepResult:
    return replace(GOLDEN, points=(*GOLDEN.points[:3], point))


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("[dt]ata/*.py", "data/a.py", True),
        ("data/[!a].py", "data/a.py", False),
        ("data/[!a].py", "data/b.py", True),
        ("[a", "[a", True),
        ("**", "a/b.py", True),
        ("**/", "a/b.py", True),
    ],
)
def test_brackets_and_everything(pattern: str, path: str, matches: bool) -> None:
    assert touched([path], [pattern]) is matches


@pytest.mark.parametrize(
    ("pattern", "below"),
    [
        ("data/**", "data/**"),
        ("./a.py", "a.py"),
        (".", "**"),
        ("./", ""),
        ("..", "**"),
        ("../data/a.py", "data/a.py"),
        ("/repo", "**"),
        ("/repo/data/*", "data/*"),
    ],
)
def test_patterns_are_taken_from_where_a_person_stands(pattern: str, below: str) -> None:
    root = Path("/repo")
    here = root if pattern == "." else root / "jobs"
    assert rooted(pattern, root, here) == below
    assert touched(["data/a.py", "a.py"], [below])


def test_patterns_that_lead_out_are_refused() -> None:
    with pytest.raises(UsageError, match="outside of /repo"):
        rooted("../../other/a.py", Path("/repo"), Path("/repo/jobs"))


def test_a_pattern_that_nothing_matches_is_a_likely_slip() -> None:
    assert idle(["data/a.py", "b.py"], ["data/**", "typo/**", "b.py"]) == ["typo/**"]


def test_a_stored_result_becomes_a_base() -> None:
    point = eight()
    assert point.time_share is not None
    assert point.samples_per_s is not None
    share = replace(point.time_share, data=Share(value=0.2))
    stored = stored_base(with_eight(replace(point, time_share=share)), 8)
    assert stored.rates == (2500.0, 2501.0, 2502.0, 2503.0)
    assert stored.cached_rates == (3100.0,) * 4
    assert (stored.name, stored.devices, stored.parts["data"]) == (GOLDEN.name, 8, 0.2)


@pytest.mark.parametrize(
    ("point", "told"),
    [
        (replace(eight(), devices=4), "no point at 8 devices"),
        (replace(eight(), status="failed", error="rank 3 died\nmore"), "no figure: rank 3 died$"),
        (replace(eight(), steps_measured=0), "no step was measured"),
        (replace(eight(), launches=(launch(0, 1.0),)), "1 launch at 8 devices, too few"),
        (without_control(eight()), "the cached rung was not measured"),
    ],
)
def test_what_holds_nothing_to_compare_with_is_refused(point: Point, told: str) -> None:
    result = replace(GOLDEN, points=(point,))
    with pytest.raises(ResultError, match=told):
        stored_base(result, 8)


def test_a_fingerprint_agrees_with_itself() -> None:
    assert differences(of_result(GOLDEN, 8), of_result(GOLDEN, 8)) == ()
    assert of_result(GOLDEN, 8).key == of_result(GOLDEN, 8).key


def test_every_difference_is_named() -> None:
    here = replace(
        GOLDEN,
        script_args=("--batch-size", "64"),
        environment=replace(
            GOLDEN.environment, torch="9.9", cores=96, threads_per_device=7, backend=None
        ),
    )
    told = differences(of_result(GOLDEN, 8), of_result(here, 4))
    assert [re.split(":", line)[0] for line in told] == [
        "devices", "cores", "threads per device", "torch", "backend", "script args",
    ]  # fmt: skip
    assert f"torch: {GOLDEN.environment.torch} stored, 9.9 here" in told
    assert of_result(here, 4).key != of_result(GOLDEN, 8).key


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"gpu_driver": "560.9"}, "gpu driver: 560.9 stored, 570.1 here"),
        ({"nccl": None}, "nccl: none stored, 2.27.5 here"),
        ({"gpu_power_limits_w": (500.0,)}, "gpu power limits w: 500.0 stored, 700.0 here"),
    ],
)
def test_gpus_differ_by_driver_nccl_and_power_limit(changed: dict[str, Any], told: str) -> None:
    machine = replace(
        GOLDEN.environment, gpus=("H100",), gpu_driver="570.1", nccl="2.27.5",
        gpu_power_limits_w=(700.0,),
    )  # fmt: skip
    on_gpus = replace(GOLDEN, device_type="cuda", environment=machine)
    other = replace(on_gpus, environment=replace(machine, **changed))
    assert differences(of_result(other, 8), of_result(on_gpus, 8)) == (told,)
    # AND what was calibrated there is not looked up here
    assert of_result(other, 8).key != of_result(on_gpus, 8).key
    beside = compare(on_gpus, other)
    assert beside.differences == (told.replace("stored", "before").replace("here", "now"),)
    assert beside.same_machine == ("power" not in told)


def test_a_job_on_the_processor_is_not_known_by_its_gpus() -> None:
    driver = replace(GOLDEN.environment, gpu_driver="570.1", gpu_power_limits_w=(700.0,))
    beside_gpus = replace(GOLDEN, environment=driver)
    assert of_result(beside_gpus, 8) == of_result(GOLDEN, 8)
    assert compare(beside_gpus, GOLDEN).differences == ()


# ---- checkouts -----------------------------------------------------------------------------------


def module(path: str, digest: str = "0", *, foreign: bool = False) -> ModuleFile:
    return ModuleFile(path=path, sha256=digest, foreign=foreign)


def test_a_module_from_the_working_tree_is_refused() -> None:
    check_code("base", [module("train.py")])
    with pytest.raises(UsageError, match=r"base: /repo/lib.py was imported from the working tree"):
        check_code("base", [module("train.py"), module("/repo/lib.py", foreign=True)])


def test_a_launch_without_any_module_of_its_checkout_is_refused() -> None:
    with pytest.raises(UsageError, match="no module came from the checkout"):
        check_code("candidate", [])


def test_sides_that_ran_the_same_code_are_refused() -> None:
    one, other = [module("train.py", "1")], [module("train.py", "2")]
    assert check_different(one, other, ["train.py", "a.yaml"]) == ()
    assert check_different(one, [*one, module("new.py")], ["new.py"]) == ()
    unread = ["tool.py", "fast.abi3.so", "fast.pyi", "docs/a.md", "b.rst", ".ci/a.yaml", ".env"]
    with pytest.raises(UsageError, match="both sides ran the same code"):
        check_different(one, one, unread)
    read = ("conf/a.yaml", "names.csv", "run.sh")
    assert check_different(one, one, [*unread, *read]) == read


def plan(script: Path, *args: str) -> SweepPlan:
    target = Target(name="train", script=script, is_workload=False, args=args)
    return SweepPlan(target=target, name="gate", output=Path("results"))


def an_arm(root: Path, folder: Path) -> Arm:
    return Arm(name="candidate", folder=folder, root=root, commit="c" * 40)


def test_script_folder_and_arguments_lead_into_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a checkout, and a person who stands in a folder of their own
    root, folder = tmp_path / "repo", tmp_path / "a" / "repo"
    for top in (root, folder):
        (top / "jobs").mkdir(parents=True)
        (top / "jobs" / "train.py").touch()
    monkeypatch.chdir(root / "jobs")
    given = plan(
        root / "jobs" / "train.py", f"--config={root}/a.yaml", f"{root}/b", "--lr=0.1", "/data/c"
    )
    moved, code = in_checkout(given, an_arm(root, folder))
    assert moved.target.script == folder / "jobs" / "train.py"
    assert moved.target.args == (f"--config={folder}/a.yaml", f"{folder}/b", "--lr=0.1", "/data/c")
    assert (code.folder, code.cwd) == (str(folder), str(folder / "jobs"))


def test_a_folder_outside_the_repository_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, folder = tmp_path / "repo", tmp_path / "a" / "repo"
    folder.mkdir(parents=True)
    root.mkdir()
    (folder / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    _, code = in_checkout(plan(root / "train.py"), an_arm(root, folder))
    assert code.cwd == str(tmp_path)


@pytest.mark.parametrize(
    ("stands_in", "given", "led_to"),
    [
        (".", "repo/a.yaml", "{folder}/a.yaml"),
        (".", "--config=repo/a.yaml", "--config={folder}/a.yaml"),
        (".", "./repo/jobs/../a.yaml", "{folder}/a.yaml"),
        (".", "repo", "{folder}"),
        (".", "repo/out", "repo/out"),  # yet to be written
        (".", "images", "images"),
        (".", "--lr=0.1", "--lr=0.1"),
        (".", "--config={root}/a.yaml", "--config={folder}/a.yaml"),
        (".", "alias/a.yaml", "{folder}/a.yaml"),
        (".", "{root}/lr=0.1/a.yaml", "{folder}/lr=0.1/a.yaml"),
        (".", "-c{root}/a.yaml", "-c{folder}/a.yaml"),
        (".", "{root}/a:{root}/b", "{folder}/a:{folder}/b"),
        (".", "--data={root}/a,{root}/b", "--data={folder}/a,{folder}/b"),
        (".", "file://{root}/a", "file://{folder}/a"),
        (".", '["{root}/a"]', '["{folder}/a"]'),
        (".", "{root}", "{folder}"),
        (".", "{root}-old/a", "{root}-old/a"),
        (".", "/elsewhere{root}/a", "/elsewhere{root}/a"),
        (".", "x" * 300, "x" * 300),
        (".", "repo/" + "x" * 300, "repo/" + "x" * 300),
        ("images", "../repo/a.yaml", "{folder}/a.yaml"),
        ("repo", "a.yaml", "a.yaml"),
        ("repo", "../repo/a.yaml", "{folder}/a.yaml"),
        ("repo", "../images", "../images"),
        ("repo/jobs", "../a.yaml", "../a.yaml"),
        ("repo/jobs", "--config=../../repo/a.yaml", "--config={folder}/a.yaml"),
        ("repo/data", "../a.yaml", "{folder}/a.yaml"),  # what is above a link is elsewhere
        ("repo", "{root}/latest.yaml", "{folder}/latest.yaml"),
        ("repo", "{root}/../images", "{root}/../images"),
    ],
)
def test_relative_arguments_lead_into_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stands_in: str, given: str, led_to: str
) -> None:
    # GIVEN a repository with a link that is tracked and a folder that is not, and one beside it
    root, folder = tmp_path / "repo", tmp_path / "tmp" / "repo"
    for top in (root, folder):
        (top / "jobs").mkdir(parents=True)
        (top / "a.yaml").touch()
        (top / "train.py").touch()
        (top / "latest.yaml").symlink_to("a.yaml")
    (root / "data").mkdir()
    (folder / "data").symlink_to(root / "data")
    (tmp_path / "images").mkdir()
    (tmp_path / "alias").symlink_to("repo")
    monkeypatch.chdir(tmp_path / stands_in)
    # WHEN, THEN
    given, led_to = (text.format(root=root, folder=folder) for text in (given, led_to))
    moved, _ = in_checkout(plan(root / "train.py", given), an_arm(root, folder))
    assert moved.target.args == (led_to,)


def test_a_side_without_the_script_is_named(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    with pytest.raises(ScriptError, match=r"candidate is broken: it has no train\.py"):
        in_checkout(plan(root / "train.py"), an_arm(root, tmp_path / "a"))
