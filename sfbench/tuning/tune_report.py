"""What ``sfbench tune`` found: pure values. ``TuneReport`` is the document of ``--json``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from sfbench.gating.gate_report import Estimate

TUNE_SCHEMA = 1

TrialStatus = Literal["gain", "no-gain", "unsettled", "contaminated", "failed", "not-tried"]
TuneVerdict = Literal["gain", "nothing-helps", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One candidate."""

    settings: str
    because: str
    """The diagnosis that it follows from; empty: none."""
    status: TrialStatus
    predicted_gain: float | None
    """In samples/s, as a ratio; None: nothing predicts it."""
    gain: Estimate | None = None
    """Measured; its interval holds together with those of all other candidates."""
    rounds: int = 0
    memory_bytes: int | None = None
    """Most of this machine's memory that a launch with it took."""
    why: str = ""
    """Of a trial that failed or was not made."""
    caution: str = ""
    """What else the settings change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineToChange:
    """A call of the script and the arguments that it is to get."""

    line: str
    """``train.py:12``; empty: not a line of the script."""
    call: str
    """DataLoader, DistributedDataParallel, or what else is to be done."""
    arguments: str
    """``num_workers=4, persistent_workers=True``."""
    path: str = ""
    """Of the file, where one file of that name lies in the script's folder."""
    options: str = ""
    """``--workers 4``, if the script takes them from its command line."""
    diff: str = ""
    """Unified, if the call is literal in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSet:
    """The settings that were confirmed by fresh launches."""

    settings: str
    predicted_gain: float | None
    gain: Estimate
    """Of fresh launches alone."""
    pairs: int
    lines: tuple[LineToChange, ...]
    cautions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneReport:
    """All that was tried, and what is worth a change."""

    schema: int = TUNE_SCHEMA
    verdict: TuneVerdict
    headline: str
    target: str
    script_args: tuple[str, ...] = ()
    devices: int
    emulated: bool = False
    oversubscribed: bool = False
    notes: tuple[str, ...] = ()
    """What sets the limit, and what no setting mends."""
    samples_per_s: float | None = None
    """Of the job as it is: median over its launches."""
    trials: tuple[Trial, ...] = ()
    best: BestSet | None = None
    unconfirmed: str = ""
    """Settings whose gain fresh launches did not show."""
    result: str | None = None
    """The sweep's result that the candidates follow from."""
    logs: str | None = None
    """Of launches, if a trial failed."""
    interrupted: bool = False
    budget_s: float
    duration_s: float = 0.0


def to_json(report: TuneReport) -> str:
    """The document of ``tune --json``."""
    return json.dumps(asdict(report), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
