"""Text from outside steers nothing, and is cut."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfbench.common.plain_text import one_line, plain, plain_values, shareable_values, without_homes


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07x", "red x"),
        ("\x9b31mred\x00\x07\x7f", "red"),
        ("10 %\r20 %\r\ndone", "10 %\n20 %\ndone"),
        (
            "a\x0b::error::b\u2028::error::c\x85##[group]d",
            "a\n.::error::b\n.::error::c\n.##[group]d",
        ),
        ("at std::vector and c10::Error", "at std::vector and c10::Error"),
        ("wrapped ::error file=a::b", "wrapped .::error file=a::b"),
        ("invoice\u202etxt.exe\u2066 \u200bx\ufeff", "invoicetxt.exe x"),
        ("caf\u00e9 – 3 ±1", "caf\u00e9 – 3 ±1"),
        ("name\udcff", "name\\xff"),
    ],
)
def test_what_steers_is_gone_and_what_is_read_stays(text: str, clean: str) -> None:
    assert plain(text) == clean


def test_a_long_text_is_cut_and_says_so() -> None:
    text = plain("x" * 200_000, most=100)

    assert text == f"{'x' * 100} … (199,900 more characters)"


def test_one_line_is_one_line() -> None:
    assert one_line("first\n\n::error::second\tthird") == "first .::error::second third"


@given(st.text(max_size=300))
def test_nothing_that_steers_is_left_whatever_comes(text: str) -> None:
    clean = plain(text)

    assert all(c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cs"} for c in clean)
    assert not any(line.lstrip().startswith(("::", "##[")) for line in clean.split("\n"))
    assert plain(clean) == clean


@dataclass(frozen=True, slots=True)
class Value:
    """Some value."""

    name: str
    parts: tuple[object, ...] = ()


def test_every_text_in_a_value_is_made_plain() -> None:
    value = Value("a\x1b[1m", (Value("b\x07", ({"c\r": ["::d", 3, None, 0.5]},)),))

    assert plain_values(value) == Value("a", (Value("b", ({"c\n": [".::d", 3, None, 0.5]},)),))


HOME, ROOT = "home", "root"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"/{HOME}/alice/job/train.py", "~/job/train.py"),
        ("log: /Users/bob/results/x, then", "log: ~/results/x, then"),
        (f"/{ROOT}/train.py:12", "~/train.py:12"),
        (f"/data/{HOME}/x/train.py", f"/data/{HOME}/USER/train.py"),
        ("/mnt/rooted/train.py", "/mnt/rooted/train.py"),
    ],
)
def test_home_folders_are_not_told(text: str, shown: str) -> None:
    assert shareable_values({"error": (text,)}) == {"error": (shown,)}
    assert without_homes(shown) == shown
