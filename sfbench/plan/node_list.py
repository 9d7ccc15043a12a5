"""Slurm's short form of host names: ``gpu[01-03,7],login``. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

_PIECE = re.compile(r"\[([^\[\]]*)\]")


def host_names(text: str) -> list[str]:
    """Every name that a node list stands for, in order.

    Raises:
        ValueError: a bracket that is not closed, or what stands in one is no list of ranges.
    """
    return [name for part in _parts(text) for name in _names(part)]


def _parts(text: str) -> list[str]:
    """Cut at the commas outside of brackets."""
    parts, depth = [""], 0
    for char in text.strip():
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            break
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    if depth != 0:
        raise ValueError(f"{text!r}: a bracket too many or too few")
    return [part.strip() for part in parts if part.strip()]


def _names(part: str) -> Iterator[str]:
    """One name with any number of brackets: the last one turns fastest."""
    pieces = _PIECE.split(part)  # outside, inside, outside, ...
    choices = [[p] if place % 2 == 0 else list(_numbers(p)) for place, p in enumerate(pieces)]
    for words in itertools.product(*choices):
        yield "".join(words)


def _numbers(inside: str) -> Iterator[str]:
    """``01-03,7`` as 01, 02, 03, 7: leading zeros stay."""
    for item in inside.split(","):
        first, dash, last = item.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"[{inside}] is no list of numbers and ranges")
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{len(first)}d}"
