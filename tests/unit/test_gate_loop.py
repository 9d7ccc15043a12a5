"""Pair after pair until a look decides: verdicts on a machine that is made up."""

from __future__ import annotations

import pytest
from gates import JITTER, OPTIONS, Machine, compare, judge, slots, with_options

from sfbench.gating.gate_report import ArmName, SlotValue
from sfbench.gating.statistics.control import shifted
from sfbench.gating.statistics.decision import CONFIRM_PAIRS, LOOKS

RATES = [2560.0 * jitter for jitter in JITTER]


def test_an_unchanged_candidate_passes_after_six_pairs() -> None:
    machine = Machine(RATES, RATES)
    compared = compare(machine)
    assert (compared.verdict, compared.pairs, compared.confirmed) == ("pass", 6, False)
    assert compared.pair_s == 10.0
    assert machine.fresh == 0


def test_a_slower_candidate_fails_once_it_was_seen_again() -> None:
    # GIVEN a candidate that does 77 % in every pair
    machine = Machine(RATES, [0.77 * rate for rate in RATES])
    compared = compare(machine)
    # THEN it fails after six pairs, and again in four more of fresh launches
    assert (compared.verdict, compared.pairs, compared.confirmed) == ("fail", 6, True)
    assert machine.fresh == 1
    assert len(machine.launched) == 2 * (6 + CONFIRM_PAIRS)
    assert [s.pair for s in compared.slots] == [pair for pair in range(10) for _ in "ab"]


def test_a_fail_that_does_not_come_again_is_inconclusive() -> None:
    slow_at_first = [0.77 * rate for rate in RATES[:6]] + [2560.0]
    compared = compare(Machine(RATES, slow_at_first))
    assert (compared.verdict, compared.confirmed) == ("inconclusive", False)


def test_noise_is_measured_on_until_the_last_look() -> None:
    noisy = [0.85, 0.99, 0.88, 0.97, 0.90, 0.95] * 3
    compared = compare(Machine([1.0], noisy))
    assert (compared.verdict, compared.pairs) == ("inconclusive", LOOKS[-1])


def test_no_look_is_begun_that_the_budget_does_not_reach() -> None:
    # GIVEN pairs of 10 s, a budget of 119 s, and noise that does not decide after 6 pairs
    noisy = [0.85, 0.99, 0.88, 0.97, 0.90, 0.95] * 3
    compared = compare(Machine([1.0], noisy), with_options(budget_s=119.0))
    # THEN two pairs to the next look and four to confirm a FAIL, 60 s, do not fit behind 60 s
    assert (compared.verdict, compared.pairs) == ("inconclusive", 6)


def test_a_budget_too_small_for_any_verdict_is_given_up_at_once() -> None:
    compared = compare(Machine(RATES, RATES), with_options(budget_s=30.0))
    assert (compared.verdict, compared.pairs) == ("inconclusive", 1)


def test_slow_first_pairs_are_no_reason_to_give_up() -> None:
    # GIVEN first pairs that measure all rungs and take 30 s, where others take 10 s
    class Slow(Machine):
        def measure(self, arm: ArmName, pair: int) -> SlotValue:
            self.now_s += 10.0 if pair < 2 else 0.0
            return super().measure(arm, pair)

    compared = compare(Slow(RATES, RATES), with_options(budget_s=125.0))
    assert (compared.verdict, compared.pairs) == ("pass", 6)


def test_a_control_that_differs_is_contamination_and_never_a_fail() -> None:
    machine = Machine(RATES, [0.77 * rate for rate in RATES])
    machine.cached = lambda arm, pair: 3000.0 * (0.8 if arm == "candidate" else 1.0)
    assert compare(machine).verdict == "contaminated"


@pytest.mark.parametrize("ratio", [1.0, 0.77])
def test_a_control_whose_level_shifts_half_way_is_contamination(ratio: float) -> None:
    # GIVEN a machine that does 60 % from the fourth pair on, on both sides alike
    machine = Machine(RATES, [ratio * rate for rate in RATES])
    machine.cached = lambda arm, pair: 3000.0 * (0.6 if pair >= 3 else 1.0)
    assert compare(machine).verdict == "contaminated"


def test_a_hog_that_starts_during_the_confirmation_is_noticed() -> None:
    machine = Machine(RATES, [0.77 * rate for rate in RATES])
    machine.cached = lambda arm, pair: 3000.0 * (0.6 if pair >= 6 else 1.0)
    compared = compare(machine)
    assert (compared.verdict, compared.confirmed) == ("contaminated", False)


def test_a_shift_is_more_than_a_burst_or_drift() -> None:
    steady = [0.0] * 6
    assert not shifted([0.0, 0.0, -0.5, 0.0, 0.0, 0.0], steady)
    assert not shifted([0.0, -0.02, -0.04, -0.06, -0.08, -0.10], steady)
    assert shifted([0.0, 0.01, 0.0, -0.3, -0.31, -0.3], steady)
    assert not shifted([0.0], [0.0])


def test_a_small_shift_is_one_where_the_job_shifts_with_it() -> None:
    # GIVEN what a hog on one of two cores did to a vision job: control, and job
    control = [6.839, 6.860, 6.844, 6.794, 6.650, 6.784, 6.709, 6.755]
    job = [6.586, 6.594, 6.584, 6.543, 6.366, 6.423, 6.422, 6.439]
    assert shifted(control, job)
    assert not shifted(control, [6.5] * 8)
    assert not shifted(control, [-level for level in job])
    assert not shifted([6.8] * 8, job)


def test_a_floor_fails_a_candidate_that_is_no_slower() -> None:
    # GIVEN 2560 samples/s on 8 devices of 400 each: 80 %
    options = with_options(min_efficiency=0.85)
    compared = compare(Machine(RATES, RATES), options)
    assert (compared.verdict, compared.confirmed) == ("fail", True)
    assert compare(Machine(RATES, RATES), with_options(min_efficiency=0.7)).verdict == "pass"


def test_a_floor_without_a_one_device_rate_gives_no_verdict() -> None:
    bare = [s for s in slots(1.0) if s.arm == "candidate"]
    assert judge(with_options(min_efficiency=0.5)).so_far(bare) is None


def test_a_missing_control_does_not_hide_a_fail() -> None:
    machine = Machine(RATES, [0.77 * rate for rate in RATES])
    machine.cached = _nothing
    assert compare(machine).verdict == "fail"


def _nothing(arm: ArmName, pair: int) -> float | None:
    return None


def test_a_blind_efficiency_does_not_hide_a_slower_pipeline() -> None:
    # GIVEN a change that slows one device as much as eight: efficiency of either side by its own
    # one-device rate is flat, and 75 % of the throughput are gone
    compared = compare(Machine(RATES, [0.25 * rate for rate in RATES]))
    assert compared.verdict == "fail"
    efficiency = judge(OPTIONS).evidence.efficiency(compared.slots)
    assert efficiency is not None
    assert round(2.718281828**efficiency.mean, 2) == 0.20
