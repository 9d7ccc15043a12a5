"""The order in which the sides are launched: pairs, balanced and randomised. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator

from sfbench.gating.gate_report import ArmName


def pair_orders(seed: int) -> Iterator[tuple[ArmName, ArmName]]:
    """For ever: which side of a pair goes first.

    Of every two pairs one begins with the base and one with the candidate, in random order, so a
    steady drift of the machine favours neither.
    """
    rng = random.Random(seed)
    first: tuple[ArmName, ArmName] = ("base", "candidate")
    second: tuple[ArmName, ArmName] = ("candidate", "base")
    while True:
        yield from rng.sample([first, second], 2)
