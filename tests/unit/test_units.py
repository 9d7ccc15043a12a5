"""Numbers to text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfbench.common import units
from sfbench.common.schema import Interval, Share


def interval(value: float, half: float | None) -> Interval:
    if half is None:
        return Interval(value=value, low=None, high=None)
    return Interval(value=value, low=value - half, high=value + half)


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (412.3, None, "412"),
        (3296.0, 30.0, "3300"),
        (3296.0, 3.0, "3296"),
        (3296.0, 0.01, "3296"),
        (0.01234, None, "0.0123"),
        (12345.6, 2.0, "12,346"),
        (None, None, "–"),
        (0.0, None, "0"),
        (5.0, 0.0, "5.000"),
    ],
)
def test_rates(value: float | None, half: float | None, text: str) -> None:
    assert units.rate(value, half) == text


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (2563.0, 33.0, "2560 ±30"),
        (412.34, 0.6, "412.3 ±0.6"),
        (412.34, 0.01, "412.3 ±0.1"),
        (412.34, None, "412 ±?"),
        (87.0, 160.0, "87 ±160"),
    ],
)
def test_rate_intervals(value: float, half: float | None, text: str) -> None:
    assert units.rate_interval(interval(value, half)) == text


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (0.0388, None, "38.8 ms"),
        (0.05, 0.0003, "50.0 ms"),
        (0.05, 0.002, "50 ms"),
        (1.234, None, "1.23 s"),
        (2e-5, None, "20.0 us"),
        (0.0, None, "0 s"),
        (-0.0012, None, "-1.20 ms"),
        (None, None, "–"),
    ],
)
def test_seconds(value: float | None, half: float | None, text: str) -> None:
    assert units.seconds(value, half) == text


def test_seconds_with_an_interval_share_one_unit() -> None:
    assert units.seconds_interval(interval(0.05, 0.0003)) == "50.0 ±0.3 ms"
    assert units.seconds_interval(None) == "–"


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (0.784, 0.012, "78% ±1"),
        (0.784, 0.004, "78.4% ±0.4"),
        (0.784, 0.0001, "78.4% ±0.1"),
        (0.784, None, "78% ±?"),
        (1.0, 0.0, "100%"),
        (-0.0001, 0.02, "0% ±2"),
    ],
)
def test_percentages(value: float, half: float | None, text: str) -> None:
    assert units.percent_interval(interval(value, half)) == text


def test_what_was_not_measured_is_a_dash() -> None:
    assert units.percent_interval(None) == "–"
    assert units.percent_interval(Share(reason="sharded")) == "–"
    assert units.percent(None) == "–"
    assert units.rate_interval(None) == "–"


def test_the_longer_side_of_an_interval_counts() -> None:
    assert units.half_width(Interval(value=10.0, low=9.0, high=12.0)) == 2.0
    assert units.half_width(Interval(value=10.0, low=None, high=None)) is None
    assert units.half_width(None) is None


def test_points_and_changes() -> None:
    assert units.points_interval(interval(0.12, 0.02)) == "12 (±2)"
    assert units.points_interval(interval(0.12, None)) == "?"
    assert units.points_interval(interval(0.30, 0.27)) == "3 to 57"
    assert units.change(interval(1.12, 0.02)) == "+12% ±2"
    assert units.change(interval(0.88, 0.02)) == "-12% ±2"
    assert units.change(interval(1.0, None)) == "+0% ±?"
    assert units.expected_change(1.12) == "+12%"


def test_a_lopsided_interval_is_given_by_its_ends() -> None:
    wide = Interval(value=1.65, low=0.89, high=3.06)
    assert units.change(wide) == "-11% to +206%"
    assert units.rate_interval(Interval(value=1000.0, low=610.0, high=1650.0)) == "600 to 1600"
    assert units.percent_interval(Interval(value=0.8, low=0.5, high=1.2)) == "50% to 120%"
    assert units.seconds_interval(Interval(value=0.1, low=0.06, high=0.17)) == "60 to 170 ms"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (interval(0.12, 0.01), "12%"),
        (interval(0.12, 0.07), "12% ±7"),
        (interval(0.38, 2.05), "?"),
        (interval(0.28, None), "?"),
        (Share(reason="sharded"), "–"),
        (interval(0.0, 0.0), "0%"),
    ],
)
def test_a_ratio_that_is_not_known_is_no_figure(ratio: Interval | Share, text: str) -> None:
    assert units.share(ratio) == text
    assert units.is_known(ratio) is (text not in {"?", "–"})


def test_a_wide_cell_says_its_half_width() -> None:
    assert units.rate_cell(interval(30846.0, 300.0)) == "30,800"
    assert units.rate_cell(interval(25306.0, 11000.0)) == "25,000 ±11,000"
    assert units.seconds_cell(interval(0.05, 0.01)) == "50 ±10 ms"
    assert units.rate_cell(interval(25306.0, None)) == "25,306 ±?"
    assert units.seconds_cell(interval(0.05, None)) == "50.0 ±? ms"
    assert units.rate_cell(None) == units.seconds_cell(None) == "–"


def test_an_efficiency_that_is_not_known_is_no_figure() -> None:
    assert units.percent_interval(interval(0.84, 0.19)) == "84% ±19"
    assert units.percent_interval(interval(0.84, 0.25)) == "59% to 109%"
    assert units.percent_interval(Interval(value=1.26, low=0.29, high=5.45)) == "?"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (102_000_000, "97.3 MiB"),
        (2**34, "16.0 GiB"),
        (1536, "1.50 KiB"),
    ],
)
def test_bytes(value: float, text: str) -> None:
    assert units.bytes_(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(7, "7"), (12345, "12,345"), (2.5, "2.5"), (2 / 3, "0.667"), (8.0, "8")]
)
def test_counts(value: float, text: str) -> None:
    assert units.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.6, "4 s"), (108.0, "1 min 48 s"), (7500.0, "2 h 5 min"), (59.7, "1 min 0 s")],
)
def test_durations(value: float, text: str) -> None:
    assert units.duration(value) == text


@settings(deadline=None)
@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1.0))
def test_the_text_is_the_value_within_its_interval(value: float, relative: float) -> None:
    # the last digit shown is that of the half-width's first, so rounding moves it by half of that
    half = value * relative
    shown = float(units.rate_interval(interval(value, half)).split(" ±")[0].replace(",", ""))
    assert abs(shown - value) <= max(half, 0.0005 * value) * 0.51 + 1e-9 or shown == 0


@pytest.mark.parametrize(
    ("numbers", "said"),
    [([1], "1 device"), ([2], "2 devices"), ([1, 2], "1 and 2 devices"),
     ([2, 4, 8], "2, 4 and 8 devices")],
)  # fmt: skip
def test_several_counts_stand_before_one_word(numbers: list[int], said: str) -> None:
    assert units.counts(numbers, "device") == said
    assert units.listed([]) == ""
