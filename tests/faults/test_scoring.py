"""The judge of the fault matrix, judged."""

from __future__ import annotations

from dataclasses import replace

import pytest
import truth
from accuracy import line
from matrix import CASES, CONTROLS, FAULTS, JITTER, LOADER, PAIRS, STRAGGLER, Case, Injected
from measure import Measured
from page import text
from score import Summary, score
from tune_matrix import REMEDIES, UNMENDED, Tuned, given_back, judged

from sfbench.common.schema import (
    Diagnosis,
    Environment,
    Interval,
    Point,
    Share,
    SweepResult,
    TimeShare,
)

SLOW = Case(
    name="slow", what="one rank slow", args=(), devices=(2,),
    injected=(Injected(cause=STRAGGLER, lost_ms=10.0, rank=1),),
)  # fmt: skip
HEALTHY = Case(name="healthy", what="nothing", args=(), devices=(2,))
EVEN = TimeShare(**{
    part: Share(value=value)
    for part, value in (
        ("compute", 0.6), ("host", 0.0), ("straggler", 0.4),
        ("jitter", 0.0), ("communication", 0.0), ("data", 0.0),
        ("stalls", 0.0),
    )
})  # fmt: skip
ENVIRONMENT = Environment(
    command="", started_at="", sfbench="", python="", torch="", platform="", host="", cpu="",
    cores=2, memory_bytes=1, gpus=(), threads_per_device=1, pinned=True, backend=None,
    git_commit=None, script_sha256="",
)  # fmt: skip


def said(regain: float, half: float = 0.01, **changes: object) -> Diagnosis:
    diagnosis = Diagnosis(
        id=STRAGGLER, devices=2, severity="bottleneck", rank=1,
        regain=Interval(value=regain, low=regain - half, high=regain + half),
        evidence={"kind": "persistent"}, advice=(),
    )  # fmt: skip
    return replace(diagnosis, **changes)  # type: ignore[arg-type]


def measured(
    case: Case,
    *diagnoses: Diagnosis,
    shares: TimeShare | None = EVEN,
    step: Interval | None = None,
) -> Measured:
    result = SweepResult(
        name="x", target="emulated", device_type="cpu", emulated=True, scaling="weak",
        points=(Point(devices=2, status="ok", time_share=shares, step_s=step),),
        diagnoses=diagnoses, environment=ENVIRONMENT,
    )  # fmt: skip
    return Measured(case=case, result=result, busy=0.0)


def test_the_matrix_is_as_large_as_promised() -> None:
    assert len(FAULTS) >= 20
    assert len(CONTROLS) >= 4
    assert len(PAIRS) >= 3
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(case.injected for case in (*FAULTS, *PAIRS))
    assert not any(case.injected for case in CONTROLS)


def test_naming_what_a_control_really_has_is_no_mistake() -> None:
    control = replace(HEALTHY, real=("interconnect",))
    real = said(0.12, id="interconnect", rank=None)

    both = score(measured(control, real, said(0.2)))
    assert score(measured(control, real)).bottlenecks == 0
    assert score(measured(control, real)).cause_right
    assert (both.bottlenecks, both.cause_right) == (1, False)
    assert "interconnect (real, by a stopwatch)" in text(
        Summary(scored=(score(measured(control, real)), score(measured(SLOW, said(0.4)))))
    )


def test_each_fault_of_a_pair_is_smaller_than_the_one_before() -> None:
    for case in PAIRS:
        first, second = (case.share(one) for one in case.injected)
        assert first > 1.25 * second


def test_a_right_cause_with_its_size() -> None:
    # GIVEN 10 ms on a step of 20 ms: a third
    scored = score(measured(SLOW, said(0.34)))
    assert (scored.first, scored.cause_right) == (STRAGGLER, True)
    assert scored.truth == pytest.approx(1 / 3)
    assert (scored.size_right, scored.covered) == (True, True)
    assert "33.3 injected, 34.0 found [33.0 35.0]" in line(scored)
    assert Summary(scored=(scored,)).misses() == ()


@pytest.mark.parametrize(
    ("found", "right"), [(0.27, True), (0.26, False), (0.39, True), (0.41, False)]
)
def test_a_size_is_right_within_a_fifth(found: float, right: bool) -> None:
    assert score(measured(SLOW, said(found))).size_right is right


@pytest.mark.parametrize(
    "wrong",
    [
        said(0.33, rank=0),
        said(0.33, id="interconnect"),
        said(0.33, devices=1),
        said(0.33, severity="info"),
        said(0.33, evidence={"kind": "rotating"}, rank=None),
    ],
)
def test_a_wrong_cause_has_no_size(wrong: Diagnosis) -> None:
    scored = score(measured(SLOW, wrong))
    assert (scored.cause_right, scored.size_right, scored.covered) == (False, None, None)
    summary = Summary(scored=(scored,))
    assert summary.misses()[0] == "first diagnosis wrong: slow"


def test_the_kinds_of_straggler_are_told_apart() -> None:
    rotating = said(0.33, evidence={"kind": "rotating"}, rank=None)
    assert score(measured(SLOW, rotating)).first == JITTER


def test_the_second_fault_of_a_pair_must_be_named_too() -> None:
    both = replace(SLOW, injected=(*SLOW.injected, Injected(cause=LOADER, lost_ms=5.0)))
    loader = said(0.14, id=LOADER, rank=None, evidence={})
    assert score(measured(both, said(0.28), loader)).cause_right
    assert not score(measured(both, loader, said(0.28))).cause_right
    assert not score(measured(both, said(0.28))).cause_right


def test_a_bottleneck_on_a_healthy_job_is_a_false_alarm() -> None:
    alarm = score(measured(HEALTHY, said(0.12)))
    calm = score(measured(HEALTHY, said(0.06, severity="contributor")))
    assert Summary(scored=(alarm,)).misses() == (
        "healthy: a bottleneck where there is none, straggler",
    )
    assert Summary(scored=(calm,)).misses() == ()


def test_shares_that_do_not_sum_or_are_missing_miss_the_budget() -> None:
    short = replace(EVEN, compute=Share(value=0.58))
    missing = replace(EVEN, host=Share(reason="no"))
    for shares in (short, missing, None):
        (miss,) = Summary(scored=(score(measured(HEALTHY, shares=shares)),)).misses()
        assert "shares sum to 1 only within" in miss


def test_an_interval_that_misses_too_often_is_said() -> None:
    scored = score(measured(SLOW, said(0.31, half=0.001)))
    assert Summary(scored=(scored,)).misses() == ("intervals that miss the injected size: slow",)


def test_the_page_shows_what_was_injected_and_what_was_found() -> None:
    page = text(
        Summary(
            scored=(
                score(measured(SLOW, said(0.34))),
                score(measured(replace(SLOW, name="other"), said(0.3, rank=0))),
                score(measured(HEALTHY)),
            )
        )
    )
    assert "| slow | one rank slow | 2 | straggler | 33.3 | 34.0 | 33.0 to 35.0 |" in page
    assert "wrong: straggler, rank 0" in page
    assert "| first diagnosis right | at least 95% | 1 of 2 |" in page
    assert "| healthy | nothing | 2 | none |" in page


def test_all_reduce_and_what_backward_does_not_hide() -> None:
    # GIVEN 4 devices, 3 ms per hop: 6 hops; 1 MB over 8 Mbit/s is 1 s, 1.5 times
    assert truth.all_reduce_ms(4, latency_ms=3.0) == 18.0
    assert truth.all_reduce_ms(4, size_bytes=1_000_000, mbps=8.0) == pytest.approx(1500.0)
    # GIVEN one bucket it is exposed whole; small ones are but for the last
    assert truth.exposed_ms(1, 5.0) == pytest.approx(5.0)
    assert truth.exposed_ms(6, 0.1) == pytest.approx(0.1)
    # GIVEN 6 buckets of 10 ms from a sixth of backward on
    assert truth.exposed_ms(6, 10.0) == pytest.approx(60.0 - truth.BACKWARD_MS * 5 / 6)


def test_batches_of_unlike_length() -> None:
    # GIVEN two ranks: the longest is 1.5 and 1.2, the mean 1.0 and 1.1; 19 ms per length
    assert truth.uneven_ms(0.5, [[0.5, 1.0], [1.5, 1.2]]) == pytest.approx(19.0 * 0.3)


def test_the_hosts_own_work_makes_the_truth_a_range() -> None:
    # GIVEN 10 ms, or 14 with the host's own: 33.3 to 41.2 %
    case = replace(SLOW, injected=(replace(SLOW.injected[0], own_ms=4.0),))
    held, missed = score(measured(case, said(0.38))), score(measured(case, said(0.30)))
    assert held.most == pytest.approx(14 / 34)
    assert (held.covered, missed.covered) == (True, False)
    assert "| 33.3 to 41.2 | 38.0 |" in text(Summary(scored=(held, score(measured(HEALTHY)))))


def test_a_size_is_a_part_of_the_step_that_there_was() -> None:
    # GIVEN 10 ms, and a step of 40 ms where 30 were expected
    step = Interval(value=0.040, low=0.039, high=0.041)
    assert score(measured(SLOW, said(0.25), step=step)).truth == pytest.approx(0.25)


def test_a_slower_host_makes_no_size_right() -> None:
    # GIVEN 10 ms on a step of 20 ms, a third, which the host made 25 % of 40 ms
    step = Interval(value=0.040, low=0.039, high=0.041)
    sizes = (0.25, 0.27, 0.39, 0.41)
    right = [score(measured(SLOW, said(size), step=step)).size_right for size in sizes]
    assert right == [False, True, True, False]


def test_an_attempt_without_figures_is_told() -> None:
    again = score(replace(measured(SLOW, said(0.34)), refused=("no steady state",)))
    page = text(Summary(scored=(again, score(measured(HEALTHY)))))
    assert "slow was measured again, since it gave no figures: no steady state" in page
    assert line(again).endswith("; no steady state")


def test_a_gain_is_judged_by_the_loss_that_was_injected() -> None:
    # GIVEN half of the step lost: without the loss the job is twice as fast
    assert given_back(1.0, 0.5) == pytest.approx(1.0)
    assert given_back(0.0, 0.5) == 0.0
    case = next(c for c in CASES if c.name == "loader-inline-2")
    lost = case.share(case.injected[0])
    whole = 1 / (1 - lost) - 1

    def of(gain: float, settings: str = "num_workers=2") -> bool:
        return judged(case, Tuned(settings=settings, gain=gain, verdict="gain", notes=()))[0]

    assert of(whole)
    assert not of(0.5 * whole)
    assert not of(whole, "bucket_cap_mb=25")


@pytest.mark.parametrize(("settings", "verdict"), [("", "failed"), ("num_workers=2", "gain")])
def test_what_no_setting_mends_gets_none_and_the_command_has_to_end(
    settings: str, verdict: str
) -> None:
    for case in (CONTROLS[0], next(c for c in CASES if c.name == UNMENDED[0])):
        nothing = Tuned(settings="", gain=0.0, verdict="nothing-helps", notes=())
        assert judged(case, nothing)[0]
        tuned = Tuned(settings=settings, gain=0.1, verdict=verdict, notes=())
        assert not judged(case, tuned)[0]
    assert {case.name for case in CASES} >= {*REMEDIES, *UNMENDED}
