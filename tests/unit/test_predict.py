"""A larger count from the parts of smaller ones, where the law behind them is known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfbench.cli.app import app
from sfbench.collect.result import write_result
from sfbench.common.errors import UsageError
from sfbench.common.schema import (
    Environment,
    Interval,
    Point,
    RankResult,
    Share,
    SweepResult,
    TimeShare,
)
from sfbench.predict.extrapolate import ALL, extrapolate, measured_of
from sfbench.predict.prediction import predict

Law = Callable[[int], dict[str, float]]
"""What each part takes at a count, in steps of one device."""
NO_PARTS = dict.fromkeys(("host", "straggler", "jitter", "communication", "data", "stalls"), 0.0)


def ring(n: int) -> dict[str, float]:
    """Bandwidth and latency of a ring all-reduce."""
    return {"communication": 0.2 * (n - 1) / n + 0.004 * (n - 1)}


def slow_rank(n: int) -> dict[str, float]:
    return {"straggler": 0.2 if n > 1 else 0.0}


def slowest_of_all(n: int) -> dict[str, float]:
    """About the expected largest of n normal delays."""
    return {"jitter": 0.1 * math.sqrt(2 * math.log(n))}


def loaders(n: int) -> dict[str, float]:
    """A capacity of 5 devices' worth of samples."""
    return {"data": max(0.0, n / 5 - 1)}


def used_up(n: int) -> dict[str, float]:
    """One of 1.5 devices' worth: used up at every count but 1."""
    return {"data": max(0.0, n / 1.5 - 1)}


def point(n: int, law: Law, half: float = 0.01) -> Point:
    parts = {**NO_PARTS, **law(n)}
    step = 1 + sum(parts.values())
    shares = {
        name: Share(value=v / step, low=v / step - 0.01, high=v / step + 0.01)
        for name, v in parts.items()
    }
    shares["compute"] = Share(value=1 / step)
    efficiency = 1 / step
    return Point(
        devices=n,
        status="ok",
        samples_per_s=Interval(value=100 * n / step, low=None, high=None),
        efficiency=Interval(value=efficiency, low=efficiency - half, high=efficiency + half),
        time_share=TimeShare(**shares),
        ranks=tuple(rank(i) for i in range(n)),
    )


def rank(number: int, node: int = 0) -> RankResult:
    return RankResult(
        rank=number, local_rank=number, host="a", device="cpu", samples_per_s=None,
        solo_step_s=None, data_wait_s=None, node=node,
    )  # fmt: skip


def result(law: Law, counts: tuple[int, ...] = (1, 2, 4, 8), **changed: object) -> SweepResult:
    environment = Environment(
        command="sfbench sweep", started_at="2026-01-01T00:00:00+00:00", sfbench="1", python="3",
        torch="2", platform="linux", host="a", cpu="x", cores=64, memory_bytes=1, gpus=(),
        threads_per_device=1, pinned=False, backend="gloo", git_commit=None, script_sha256="",
    )  # fmt: skip
    plain = SweepResult(
        name="job",
        target="train.py",
        device_type="cpu",
        emulated=False,
        scaling="weak",
        points=tuple(point(n, law) for n in counts),
        environment=environment,
    )
    return replace(plain, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("law", [ring, slow_rank, slowest_of_all, used_up])
@pytest.mark.parametrize("devices", [12, 16])
def test_the_interval_holds_what_the_law_gives(law: Law, devices: int) -> None:
    found = predict(result(law), devices)

    truth = 1 / (1 + sum(law(devices).values()))
    assert found.refused is None
    assert found.efficiency is not None
    assert found.efficiency.low <= truth <= found.efficiency.high  # type: ignore[operator]
    assert abs(found.efficiency.value - truth) <= 0.05
    assert found.samples_per_s is not None
    assert found.samples_per_s.value == pytest.approx(100 * devices * found.efficiency.value)


def test_what_begins_with_the_largest_count_is_not_foretold() -> None:
    found = predict(result(loaders), 16)

    assert found.refused is not None
    assert "predict" in found.refused
    assert (found.efficiency, found.samples_per_s, found.parts) == (None, None, ())
    assert found.check is not None


@pytest.mark.parametrize(
    ("changed", "devices", "words"),
    [
        ({"scaling": "strong"}, 16, "strong scaling"),
        ({"device_type": "cuda"}, 16, "this machine has 0 GPUs"),
        ({"points": tuple(point(n, ring) for n in (1, 2))}, 4, "needs 3 measured counts"),
        ({"points": tuple(point(n, ring) for n in (2, 4, 8))}, 16, "1 among them"),
        ({"points": tuple(point(n, ring) for n in (1, 2, 8))}, 16, "measure a count between"),
        ({"points": tuple(point(n, ring, 0.2) for n in (1, 2, 4))}, 8, "fits what was measured"),
    ],
)
def test_what_cannot_be_said_is_refused_with_the_reason(
    changed: dict[str, object], devices: int, words: str
) -> None:
    found = predict(result(ring, **changed), devices)

    assert found.efficiency is None
    assert words in str(found.refused)


def test_a_machine_without_room_is_refused_unless_several_were_measured() -> None:
    small = result(ring)
    small = replace(small, environment=replace(small.environment, cores=8))
    spread = replace(
        small,
        points=(
            *small.points[:-1],
            replace(small.points[-1], ranks=tuple(rank(i, i // 4) for i in range(8))),
        ),
    )

    assert "this machine has 8" in str(predict(small, 16).refused)
    assert predict(spread, 16).refused is None


@pytest.mark.parametrize("devices", [8, 4, 17, 3])
def test_what_was_measured_or_is_too_far_is_an_error(devices: int) -> None:
    with pytest.raises(UsageError, match=f"--devices {devices}: "):
        predict(result(ring), devices)


def test_parts_that_were_not_told_apart_count_as_one() -> None:
    points = tuple(replace(point(n, slow_rank), time_share=None) for n in (1, 2, 4, 8))

    found = predict(result(slow_rank, points=points), 10)

    assert [part.name for part in found.parts] in (["all"], [])
    assert found.refused is None or "all" in found.refused


def test_the_command_prints_and_tells_the_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "job").mkdir(parents=True)
    write_result(tmp_path / "results" / "job", result(ring))
    words = ["predict", "job", "--devices", "16", "--price-per-device-hour", "3.6"]

    said = CliRunner().invoke(app, words)
    document = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)

    assert said.exit_code == 0, said.output
    assert said.stdout.startswith("16 devices, predicted from 1, 2, 4, 8: efficiency ")
    assert "communication" in said.stdout
    assert "A million samples cost" in said.stdout
    # 16 devices at 0.001 per second each
    per_s = document["samples_per_s"]["value"]
    assert document["cost_per_million_samples"]["value"] == pytest.approx(1e6 * 0.016 / per_s)


def test_the_command_ends_with_3_where_nothing_can_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "job").mkdir(parents=True)
    write_result(tmp_path / "results" / "job", result(ring, scaling="strong"))

    said = CliRunner().invoke(app, ["predict", "job", "--devices", "16"])

    assert said.exit_code == 3
    assert said.stdout.startswith("16 devices: nothing can be said: with strong scaling")


def test_shares_that_are_no_figures_are_not_told_apart() -> None:
    # GIVEN a point whose share of communication is known no better than by 40 points
    vague = point(4, ring)
    assert vague.time_share is not None
    share = Share(value=0.1, low=-0.3, high=0.5)
    vague = replace(vague, time_share=replace(vague.time_share, communication=share))
    # THEN what is lost enters as a whole
    found = measured_of(vague)
    assert found is not None
    assert found.parts == {"all": pytest.approx(found.step - 1)}


def test_a_loss_as_a_whole_is_compared_with_a_whole() -> None:
    # GIVEN 4 devices whose loss is known by its parts, and 8 where it is known as one
    named, whole = measured_of(point(4, ring)), measured_of(point(8, ring))
    assert named is not None
    assert whole is not None
    lump = replace(whole, parts={ALL: whole.step - 1})
    as_whole = replace(named, parts={ALL: named.step - 1})
    # THEN it has grown by what is new alone, whichever of the two is told by its parts
    expected = extrapolate([as_whole, lump], 16)
    assert extrapolate([named, lump], 16) == expected
    assert extrapolate([as_whole, whole], 16) == expected


def test_a_prediction_that_allows_anything_checks_nothing() -> None:
    # GIVEN counts below the last two of which hardly anything is known
    points = [point(n, ring) for n in (1, 2, 4, 8)]
    wide = Interval(value=points[1].efficiency.value, low=-0.5, high=2.0)  # type: ignore[union-attr]
    points[1] = replace(points[1], efficiency=wide)
    found = predict(result(ring, points=tuple(points)), 16)
    assert found.refused is not None
    assert "known too little to check a prediction" in found.refused


@pytest.mark.parametrize("price", ["nan", "inf", "0", "-1"])
def test_a_price_that_is_none_is_refused(price: str) -> None:
    said = CliRunner().invoke(
        app, ["predict", "job", "--devices", "16", "--price-per-device-hour", price]
    )
    assert isinstance(said.exception, UsageError)
    assert "give a finite number above 0" in str(said.exception)


def test_without_an_interval_an_efficiency_is_not_measured() -> None:
    assert (
        measured_of(replace(point(4, ring), efficiency=Interval(value=0.8, low=None, high=None)))
        is None
    )
