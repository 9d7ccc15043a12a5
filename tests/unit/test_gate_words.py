"""What a gate says, and everywhere it says it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from gates import (
    HEAVY,
    JITTER,
    LIGHT,
    OPTIONS,
    SEEN,
    SUBJECT,
    WIDE,
    Machine,
    compare,
    judge,
    with_options,
)

from sfbench.common.errors import Unsteady
from sfbench.gating.conclusion import (
    SidesParts,
    Subject,
    compared_report,
    to_json,
    unmeasured_report,
)
from sfbench.gating.gate_report import (
    ArmName,
    CalibrationNote,
    GateOptions,
    GateReport,
    Rate,
    SlotValue,
    Verdict,
)
from sfbench.gating.output.actions import MOST, annotation_lines
from sfbench.gating.output.gate_rows import GateRow, rows
from sfbench.gating.output.junit import render_junit
from sfbench.gating.output.markdown import MOST_BYTES, render_markdown
from sfbench.gating.output.terminal import render_text
from sfbench.gating.output.words import NO_FLOOR
from sfbench.gating.statistics.decision import LOOKS
from sfbench.gating.statistics.loop import Compared
from sfbench.gating.stored import Stored

RATES = [2560.0 * jitter for jitter in JITTER]
NOTE = CalibrationNote(
    measured_at="2026-01-02T03:04:05+00:00",
    age_days=3.2,
    margin=OPTIONS.margin,
    budget_s=OPTIONS.budget_s,
    false_fail=Rate(value=0.0, upper=0.00075, draws=4000),
    caught=0.11,
    control_band=0.03,
)


def report_of(
    machine: Machine,
    options: GateOptions = OPTIONS,
    *,
    subject: Subject = SUBJECT,
    seen: SidesParts = SEEN,
    calibration: CalibrationNote | None = NOTE,
) -> GateReport:
    compared: Compared = compare(machine, options)
    return compared_report(subject, judge(options), compared, seen, calibration=calibration)


def slower() -> GateReport:
    return report_of(Machine(RATES, [0.77 * rate for rate in RATES]))


def test_a_regression_says_how_much_how_sure_and_why() -> None:
    found = slower()
    assert found.headline == (
        "REGRESSION: 8 devices 2564 -> 1974 samples/s (-23 %, 95 % CI -23 to -23, 10 pairs)."
    )
    # data: 0.2455 / 0.77 - 0.02 = 0.30 of the base's step; communication: 0.1 / 0.77 = 0.13
    assert found.reasons == (
        "Data loading grew from 2% to 25% of the step (seconds per sample 4.10 ms -> 9.80 ms); "
        "communication and compute unchanged.",
    )
    assert found.warnings == ()


def test_efficiency_of_both_sides_is_anchored_to_the_base() -> None:
    found = slower()
    assert found.base is not None
    assert found.candidate is not None
    assert found.base.efficiency == pytest.approx(found.base.samples_per_s / 3200)
    assert found.candidate.efficiency == pytest.approx(found.candidate.samples_per_s / 3200)


def test_several_parts_that_grew_are_one_reason() -> None:
    # GIVEN a step that takes twice as long: communication grew more than data
    worse = HEAVY | {"communication": 0.5, "data": 0.1, "compute": 0.4, "host": 0.02}
    found = report_of(Machine(RATES, [0.5 * r for r in RATES]), seen=replace(SEEN, candidate=worse))
    assert found.reasons == (
        "Communication grew from 13% to 50% of the step; data loading grew from 2% to 10% of the "
        "step (seconds per sample 4.10 ms -> 9.80 ms); compute unchanged.",
    )


def test_a_part_that_is_not_known_is_named_without_figures() -> None:
    # GIVEN data whose share is known no better than by 24 points, and that grew by far more
    wide = {**WIDE, "data": 0.24}
    worse = HEAVY | {"data": 0.9, "communication": 0.02, "compute": 0.07, "host": 0.01}
    found = report_of(
        Machine(RATES, [0.2 * rate for rate in RATES]),
        seen=replace(SEEN, candidate=worse, candidate_half_width=wide),
    )
    assert found.reasons[0].startswith("Data loading grew (seconds per sample 4.10 ms -> 9.80 ms)")


def test_no_reason_is_made_up_where_parts_were_not_measured() -> None:
    unknown = LIGHT | {"data": None, "communication": None, "compute": None, "host": None}
    found = report_of(Machine(RATES, [0.5 * r for r in RATES]), seen=replace(SEEN, base=unknown))
    (reason,) = found.reasons
    assert reason.startswith("Could not identify which part of the step got slower")


def test_a_pass_needs_no_reason() -> None:
    found = report_of(Machine(RATES, RATES))
    assert found.headline.startswith("PASS: 8 devices 2561 -> 2561 samples/s (+0 %, 95 % CI")
    assert found.reasons == ()


def test_inconclusive_says_what_it_would_take() -> None:
    noisy = [0.85, 0.99, 0.88, 0.97, 0.90, 0.95] * 3
    found = report_of(Machine([1.0], [0.97 * ratio + 0.01 for ratio in noisy]))
    assert found.verdict == "inconclusive"
    (reason,) = found.reasons
    assert found.pairs_needed is not None
    assert found.pairs_needed > LOOKS[-1]
    assert "more than 16 pairs would be needed, the most that are measured" in reason


def test_a_change_far_from_the_margin_tells_a_number_of_pairs() -> None:
    noisy = [0.95, 1.09, 0.98, 1.07, 1.00, 1.05] * 3
    found = report_of(Machine([1.0], noisy), with_options(budget_s=100.0))
    assert (found.verdict, found.pairs) == ("inconclusive", 6)
    assert found.pairs_needed == 7
    # pairs of 10 s: looks are after 8, and a FAIL would need 4 more
    assert "about 7 pairs are needed: give --budget 140, another --margin" in found.reasons[0]
    more = report_of(Machine([1.0], noisy), with_options(budget_s=140.0))
    assert (more.verdict, more.pairs) == ("pass", 10)


def test_an_open_floor_is_not_called_an_open_margin() -> None:
    wide = [0.70, 0.95, 0.75, 0.92, 0.78, 0.90] * 3
    machine = Machine([3200.0 * r for r in wide], [3200.0 * r for r in wide])
    found = report_of(machine, with_options(min_efficiency=0.83))
    assert found.verdict == "inconclusive"
    (reason,) = [r for r in found.reasons if "still includes" in r]
    assert "the floor of 83% for efficiency" in reason
    assert "margin of" not in reason


def test_a_fail_that_was_not_confirmed_is_told() -> None:
    # GIVEN a burst that hits the candidate in the first six pairs
    machine = Machine(RATES, [*[0.7 * rate for rate in RATES], 2560.0])
    found = report_of(machine)
    assert (found.verdict, found.confirmed, found.unconfirmed) == ("inconclusive", False, True)
    assert found.reasons == (
        "The first 6 pairs showed a regression, and 4 fresh ones with the checkouts swapped did "
        "not: it is noise, or the change is near to the limit. Run again, on a quieter machine if "
        "there is one.",
    )


def test_a_floor_that_nothing_is_known_of_is_told() -> None:
    machine = Machine(RATES, RATES)
    sololess = Compared(
        verdict="inconclusive", pairs=6, confirmed=False, pair_s=10.0,
        slots=tuple(replace(s, solo_samples_per_s=None) for s in compare(machine).slots),
    )  # fmt: skip
    options = with_options(min_efficiency=0.8)
    found = compared_report(SUBJECT, judge(options), sololess, SEEN)
    assert found.reasons == (NO_FLOOR,)


def test_a_part_whose_interval_holds_no_growth_is_not_blamed() -> None:
    wide = replace(SEEN, candidate_half_width=dict(data=0.4, communication=0.3, compute=0.3))
    (reason,) = report_of(Machine(RATES, [0.77 * r for r in RATES]), seen=wide).reasons
    assert reason.startswith("Could not identify which part of the step got slower")


@pytest.mark.parametrize("after", [-0.05, 0.0, 0.01])
def test_a_part_that_noise_puts_below_nothing_is_not_blamed(after: float) -> None:
    seen = replace(SEEN, base=LIGHT | {"communication": -0.13})
    seen = replace(seen, candidate=HEAVY | {"communication": after})
    (reason,) = report_of(Machine(RATES, [0.77 * r for r in RATES]), seen=seen).reasons
    assert reason.startswith("Data loading grew from 2% to 25% of the step")
    assert "communication and compute unchanged" in reason


def test_a_part_that_takes_longer_is_named_though_its_share_fell() -> None:
    # GIVEN a step that takes twice as long, half of it compute where it was 80 %
    parts = dict(compute=0.5, host=0.02, communication=0.06, data=0.42)
    seen = replace(SEEN, candidate=parts)
    (reason,) = report_of(Machine(RATES, [0.5 * r for r in RATES]), seen=seen).reasons
    assert "compute takes 1.3 times as long per sample" in reason


def test_a_budget_that_is_too_small_is_told() -> None:
    found = report_of(Machine(RATES, RATES), with_options(budget_s=30.0))
    assert found.reasons == (
        "The budget allowed 1 pair, and 6 are the least that support a verdict: "
        "give --budget 120 or more.",
    )


def test_contamination_tells_a_shift_from_a_difference() -> None:
    machine = Machine(RATES, RATES)
    machine.cached = lambda arm, pair: 3000.0 * (0.6 if pair >= 3 else 1.0)
    assert "changed its speed while it was measured" in report_of(machine).reasons[0]
    machine = Machine(RATES, RATES)
    machine.cached = lambda arm, pair: 3000.0 * (0.8 if arm == "candidate" else 1.0)
    assert "differs between the sides by -20 %" in report_of(machine).reasons[0]


def test_a_floor_is_named() -> None:
    found = report_of(Machine(RATES, RATES), with_options(min_efficiency=0.85))
    assert found.verdict == "fail"
    assert "Efficiency 80% is below the floor of 85%." in found.reasons


def test_warnings_are_told_beside_the_numbers() -> None:
    machine = Machine([2.0 * rate for rate in RATES], [2.0 * rate for rate in RATES])
    machine.cached = lambda arm, pair: None
    found = report_of(
        machine,
        subject=replace(SUBJECT, stale_base=True),
        seen=replace(SEEN, emulated=True, oversubscribed=True),
        calibration=replace(NOTE, age_days=31.0),
    )
    starts = [warning.split(":")[0].split(" has")[0] for warning in found.warnings]
    assert starts == [
        "emulated accelerator",
        "oversubscribed",
        "main",
        "no control",
        "base",
        "candidate",
        "the calibration of this machine is 31 days old",
    ]
    assert "160% is above 105%" in found.warnings[4]


def test_too_few_pairs_for_a_control_are_no_missing_control() -> None:
    note = replace(NOTE, budget_s=30.0)
    found = report_of(Machine(RATES, RATES), with_options(budget_s=30.0), calibration=note)
    assert (found.pairs, found.control, found.warnings) == (1, None, ())


def test_sides_whose_steps_take_different_numbers_of_samples_are_told() -> None:
    seen = replace(SEEN, base_samples_per_step=64.0, candidate_samples_per_step=128.0)
    (warning,) = report_of(Machine(RATES, RATES), seen=seen).warnings
    assert warning.startswith("a step takes 64 samples in the base and 128 in the candidate")


def test_a_machine_that_never_settles_later_keeps_what_was_measured() -> None:
    class Shaken(Machine):
        def measure(self, arm: ArmName, pair: int) -> SlotValue:
            if pair == 4:
                raise Unsteady("base: a launch never came to a steady state")
            return super().measure(arm, pair)

    found = report_of(Shaken(RATES, RATES))
    assert (found.verdict, found.pairs) == ("inconclusive", 4)
    assert found.reasons == ("base: a launch never came to a steady state",)
    assert found.change is not None


def test_a_machine_that_never_settles_in_a_confirmation_confirms_nothing() -> None:
    class Shaken(Machine):
        def measure(self, arm: ArmName, pair: int) -> SlotValue:
            if pair == 7:
                raise Unsteady("base: a launch never came to a steady state")
            return super().measure(arm, pair)

    found = report_of(Shaken(RATES, [0.7 * rate for rate in RATES]))
    assert (found.verdict, found.pairs, found.unconfirmed) == ("inconclusive", 7, False)


def test_a_machine_that_never_settles_at_all_gives_no_figures() -> None:
    class Shaken(Machine):
        def measure(self, arm: ArmName, pair: int) -> SlotValue:
            raise Unsteady("base: a launch never came to a steady state")

    with pytest.raises(Unsteady):
        compare(Shaken(RATES, RATES))


def test_a_machine_without_calibration_is_told() -> None:
    (warning,) = report_of(Machine(RATES, RATES), calibration=None).warnings
    assert warning.startswith("not calibrated on this machine")


def test_a_stored_base_is_shown_as_it_was() -> None:
    stored = Stored(
        name="nightly", devices=8, rates=(2500.0, 2600.0, 2550.0), cached_rates=(3000.0,) * 3,
        solo_samples_per_s=400.0, commit=None, parts=LIGHT, parts_half_width=dict(),
    )  # fmt: skip
    compared = compare(Machine(RATES, RATES))
    found = compared_report(SUBJECT, judge(), compared, SEEN, stored=stored)
    assert found.base is not None
    assert found.base.samples_per_s == pytest.approx(2550.0, rel=1e-3)
    assert found.base.efficiency == pytest.approx(2550.0 / 3200, rel=1e-3)


# ---- where it is said ----------------------------------------------------------------------------


def error_report(verdict: Verdict = "broken") -> GateReport:
    reason = "candidate is broken: rank 1: ValueError: <b>|\n    ```\x1b[0m last line"
    return unmeasured_report(SUBJECT, OPTIONS, verdict, reason)


def verdicts() -> dict[Verdict, GateReport]:
    noisy = [0.85, 0.99, 0.88, 0.97, 0.90, 0.95] * 3
    shaken = Machine(RATES, RATES)
    shaken.cached = lambda arm, pair: 3000.0 * (0.6 if pair >= 3 else 1.0)
    return {
        "pass": report_of(Machine(RATES, RATES)),
        "fail": slower(),
        "inconclusive": report_of(Machine([1.0], noisy)),
        "contaminated": report_of(shaken),
        "not-touched": unmeasured_report(SUBJECT, OPTIONS, "not-touched", "Nothing matches a, b."),
        "broken": error_report(),
        "not-measured": error_report("not-measured"),
    }


ALL = verdicts()


def test_figures_as_rows() -> None:
    assert rows(slower()) == (
        GateRow(name="samples/s", base="2564 ±3", candidate="1974 ±3", change="-23 % (-23 to -23)"),
        GateRow(name="efficiency", base="80.1% ±0.1", candidate="61.7% ±0.1", change="–"),
        GateRow(name="data loading, of the step", base="2%", candidate="25%", change="–"),
        GateRow(name="compute, of the step", base="80%", candidate="62%", change="–"),
        GateRow(name="communication, of the step", base="13%", candidate="10%", change="–"),
        GateRow(
            name="loading, per sample",
            base="4.10 ms", candidate="9.80 ms", change="–",
        ),
        GateRow(
            name="control (no data loading)", base="–", candidate="–", change="+0 % (+0 to +0)",
        ),
    )  # fmt: skip
    assert rows(error_report()) == ()


@pytest.mark.parametrize("report", ALL.values(), ids=ALL)
def test_text_fits_its_width_and_begins_with_the_verdict(report: GateReport) -> None:
    text = render_text(report, 80, color=False)
    assert text.startswith(report.headline[:60])
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b[1;" in render_text(report, 80, color=True)


def test_text_quotes_the_calibration_and_the_confirmation() -> None:
    text = render_text(slower(), 200, color=False)
    assert "Seen again in fresh launches, with the checkouts swapped." in text
    assert (
        "Calibrated 3 days ago at a margin of 8% and a budget of 1000 s: false FAIL 0.00 % "
        "(at most 0.07 %, 4000 draws), a slow-down of 11% is caught in 95 of 100 runs."
    ) in text


@pytest.mark.parametrize("report", ALL.values(), ids=ALL)
def test_json_is_the_report(report: GateReport) -> None:
    document = json.loads(to_json(report))
    assert (document["schema"], document["verdict"]) == (1, report.verdict)
    assert len(document["slots"]) == len(report.slots)


@pytest.mark.parametrize("verdict", ALL)
def test_junit_tells_failures_errors_and_skips_apart(verdict: Verdict) -> None:
    report = ALL[verdict]
    suite = ET.fromstring(render_junit(report)).find("testsuite")
    assert suite is not None
    counts = {name: int(suite.attrib[name]) for name in ("failures", "errors", "skipped")}
    assert counts == {
        "failures": int(verdict == "fail"),
        "errors": int(verdict in {"broken", "not-measured"}),
        "skipped": int(verdict in {"inconclusive", "contaminated", "not-touched"}),
    }
    case = suite.find("testcase")
    assert case is not None
    told = [child for child in case if child.tag != "system-out"]
    assert len(told) == sum(counts.values())
    for element in told:
        assert element.attrib["message"].startswith(report.headline)
        assert ("ValueError" in element.attrib["message"]) is bool(counts["errors"])
        assert element.text


@pytest.mark.parametrize("report", ALL.values(), ids=ALL)
def test_markdown_holds_the_verdict_and_no_markup_of_others(report: GateReport) -> None:
    text = render_markdown(report)
    assert report.headline.split(":")[0] in text.splitlines()[0]
    assert "<b>" not in text
    assert text.count("```") in {0, 2}


def test_markdown_stays_below_what_a_comment_takes() -> None:
    long = replace(slower(), warnings=("ä" * 1000,) * 100)
    assert len(render_markdown(long).encode()) <= MOST_BYTES


def test_markdown_of_an_error_calls_nobody_and_links_nowhere() -> None:
    reason = "see ![x](ftp://nowhere/y) **@all** [a](b) `c`"
    text = render_markdown(unmeasured_report(SUBJECT, OPTIONS, "broken", reason))
    for markup in ("![x](", "ftp://", "**@", "@all", "[a](b)", "`c`"):
        assert markup not in text.split("<sub>")[0]
    odd = replace(SUBJECT, target="a`b", against="c|`d")
    assert "`a'b` against `c'd`" in render_markdown(unmeasured_report(odd, OPTIONS, "broken", ""))


def test_markdown_that_is_cut_ends_its_code_block() -> None:
    many = replace(error_report(), reasons=tuple("rank 1 died\n" + "x" * 3900 for _ in range(30)))
    text = render_markdown(many)
    assert len(text.encode()) <= MOST_BYTES
    assert text.count("\n```") % 2 == 0


def test_a_dirty_candidate_looks_dirty() -> None:
    subject = replace(SUBJECT, candidate_commit="c" * 40 + "+dirty")
    text = render_markdown(report_of(Machine(RATES, RATES), subject=subject))
    assert f"candidate `{'c' * 12}+dirty`" in text


def test_a_regression_is_one_annotation() -> None:
    (line,) = annotation_lines(slower())
    assert line.startswith("::error title=sfbench gate::REGRESSION: 8 devices")
    assert "-23 %25, 95 %25 CI" in line
    assert "Data loading grew" in line


def test_annotations_are_lines_and_at_most_ten() -> None:
    many = replace(error_report(), warnings=tuple(f"warning {n}" for n in range(20)))
    lines = annotation_lines(many)
    assert len(lines) == MOST
    assert all("\n" not in line for line in lines)
    assert "%0A" in lines[0]
    assert [line.split(" ", maxsplit=1)[0] for line in lines] == ["::error", *["::warning"] * 9]
