"""The parts of a step: the one place that lists them.

Whatever shows, sums or judges parts goes over ``PARTS``: shares, losses, table, report, gate. Each
part has a field of its name in ``sfbench.common.schema.TimeShare``, which is its name in JSON too.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfbench.common.schema import Rung


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the step."""

    id: str
    """Its field in ``TimeShare``."""
    label: str
    """In a sentence."""
    heading: str
    """Above a column."""
    colour: str
    """On a light ground, as CSS has it."""
    dark_colour: str
    """On a dark ground."""
    formula: str
    """Terms of ``sfbench.analyze.quantities``: the first less all others."""
    rungs: tuple[Rung, ...]
    """The rungs that the formula needs beside ``train``."""
    column_from: float = 0.0
    """It has a column of its own only if its share reaches this somewhere."""

    @property
    def takes(self) -> str:
        """The verb behind its label."""
        return "take" if self.label == "stalls" else "takes"

    @property
    def terms(self) -> tuple[str, ...]:
        """The quantities of the formula."""
        return tuple(self.formula.split(" - "))


COMPUTE = Part(
    id="compute",
    label="compute",
    heading="compute",
    colour="#6c7a89",
    dark_colour="#93a1b0",
    formula="solo",
    rungs=("solo",),
)
DATA = Part(
    id="data",
    label="data loading",
    heading="data",
    colour="#9a5800",
    dark_colour="#e7a33f",
    formula="train - cached",
    rungs=("cached",),
)
COMMUNICATION = Part(
    id="communication",
    label="communication",
    heading="comm",
    colour="#0b7285",
    dark_colour="#5fc4d3",
    formula="cached - slowest",
    rungs=("cached", "unsynced"),
)
STRAGGLER = Part(
    id="straggler",
    label="straggler",
    heading="straggler",
    colour="#bb3e26",
    dark_colour="#ee7d67",
    formula="excess",
    rungs=("unsynced",),
)
JITTER = Part(
    id="jitter",
    label="jitter",
    heading="jitter",
    colour="#7d4fa0",
    dark_colour="#c39ae0",
    formula="slowest - others - excess",
    rungs=("unsynced",),
    column_from=0.005,
)
HOST = Part(
    id="host",
    label="host contention",
    heading="host",
    colour="#2f7d55",
    dark_colour="#6cc497",
    formula="others - solo",
    rungs=("unsynced", "solo"),
)
STALLS = Part(
    id="stalls",
    label="stalls",
    heading="stalls",
    colour="#8a7a1f",
    dark_colour="#d8c75a",
    formula="stalls",
    rungs=(),
    column_from=0.005,
)

PARTS = (COMPUTE, DATA, COMMUNICATION, STRAGGLER, JITTER, HOST, STALLS)
"""In the order in which people read them."""
