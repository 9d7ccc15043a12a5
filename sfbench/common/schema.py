"""What crosses process and file borders. Standard library only, so the probe may import it.

Three groups of frozen values:

* ``RankJob`` (``sfbench.protocol.records``) goes from the launcher into every rank (pickled).
* ``LaunchRecord`` (there too) comes back from rank 0 of a launch (``record.npz``).
* ``SweepResult`` is ``sweep.json``, the document that ``sweep --json`` and ``show --json`` print.

Units are SI and stand in the names. ``SCHEMA`` counts versions of ``SweepResult``: fields may be
added, never renamed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sfbench.protocol.records import (
    HEARTBEAT_COLUMNS,
    LADDER,
    PHASES,
    RECORD_FORMAT,
    RUNGS,
    STEP_COLUMNS,
    AllReduceTime,
    CheckResult,
    CodeRoot,
    LateStep,
    LaunchRecord,
    LoopInfo,
    ModuleFile,
    OwnCollective,
    ProbeOptions,
    RankFailure,
    RankInfo,
    RankJob,
    RankLoad,
    Rung,
    RungLoad,
    SaveInfo,
    StallKind,
)

__all__ = [
    "HEARTBEAT_COLUMNS",
    "LADDER",
    "PHASES",
    "RECORD_FORMAT",
    "RUNGS",
    "SCHEMA",
    "STEP_COLUMNS",
    "AllReduceTime",
    "BatchTime",
    "Beginning",
    "CheckResult",
    "CodeRoot",
    "Diagnosis",
    "Environment",
    "EpochTime",
    "Interval",
    "LateStep",
    "LaunchRecord",
    "LaunchSummary",
    "LoopInfo",
    "ModuleFile",
    "OwnCollective",
    "OwnSteps",
    "Point",
    "ProbeOptions",
    "RankFailure",
    "RankInfo",
    "RankJob",
    "RankLoad",
    "RankResult",
    "Rung",
    "RungLoad",
    "SaveInfo",
    "Share",
    "Stall",
    "StallKind",
    "StepQuantiles",
    "Stretch",
    "StretchPart",
    "SweepResult",
    "TimeShare",
]

SCHEMA = 1
NOT_TOLD_APART = "not told apart by the version that wrote this"
"""Reason of a part that is younger than a result: what it took is in the other parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its 95 % interval. low and high are None if one sample gives none."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A time share, a ratio of the step. value is None with a reason where it was not measured."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShare:
    """Parts of the step time; they sum to 1 where all were measured."""

    compute: Share
    host: Share
    straggler: Share
    jitter: Share
    communication: Share
    data: Share
    stalls: Share = Share(reason=NOT_TOLD_APART)

    def of(self, part: str) -> Share:
        """The share of a part, by its id."""
        share: Share = getattr(self, part)
        return share


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """One rank at one point."""

    rank: int
    local_rank: int
    host: str
    device: str
    samples_per_s: float | None
    solo_step_s: float | None
    data_wait_s: float | None
    """Mean time per step that the script waited for the loader."""
    peak_memory_bytes: int | None = None
    """Most device memory allocated in measured train steps; None without an accelerator."""
    node: int = 0
    """Number of the machine that it ran on, of a sweep over several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The first steps of the first launch, and where measuring could begin."""

    step_s: tuple[float, ...]
    """Median over ranks, in order."""
    warmup_steps: int
    """So many of them were left out of every figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSteps:
    """What each rank needs for a step by itself, without gradient sync, over the sweep."""

    first_rank: tuple[int, ...]
    """Each row holds the ranks from this one up to the next row's: the slowest of them."""
    step_s: tuple[tuple[float | None, ...], ...]
    """By row, then by stretch of the sweep in order; None if a rank has no such step."""


StretchPart = Literal["between", "stall", "other", "data", "forward", "backward", "update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A few steps of all ranks side by side, around the largest stall: one place per part."""

    rank: tuple[int, ...]
    part: tuple[StretchPart, ...]
    """``other``: evaluation or saving; ``backward``: with the wait for others."""
    began_s: tuple[float, ...]
    """Since the first of these steps began, by the clock of the rank's host."""
    ended_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTime:
    """One device's step at another batch size."""

    samples: float
    step_s: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class StepQuantiles:
    """Distribution of step_s over the measured train steps of all ranks, for the report."""

    q: tuple[float, ...]
    """Probabilities, ascending from 0 to 1."""
    step_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSummary:
    """One launch of a point: what the intervals are made of."""

    launch: int
    round: int
    status: Literal["ok", "failed", "timeout"]
    samples_per_s: float | None
    steps: int
    start_s: float
    """Seconds since the sweep began."""
    wall_s: float
    setup_s: float
    warmup_s: float
    measured_s: float
    blocks: tuple[float, ...] = ()
    """samples_per_s of each measured train block, in order."""
    cached_blocks: tuple[float, ...] = ()
    """The same of blocks on the ``cached`` rung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """What a script does again and again between ordinary steps."""

    rank: int | None
    """Who stops; None: all ranks at the same steps, or the only one."""
    kind: StallKind
    """The first two stand outside of the training loop: no figure of the step holds them."""
    line: str
    """Where in the script; empty if it was too short to be looked at."""
    per: Literal["steps", "epoch", "irregular"]
    period_steps: int | None
    """Steps from one to the next; None if irregular."""
    sure: bool
    """False: each launch had one, at the same step, which may as well be once per start."""
    times: int
    """How often it was seen."""
    size_s: Interval
    per_step_s: Interval
    """What it costs each step of the job on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTime:
    """Wall time of a whole epoch as the script would run it, maximum over ranks."""

    steps: int
    training_s: float
    stalls_s: float
    evaluation_s: float
    saving_s: float
    start_up_s: float
    """From the start of the ranks to the first step: once per job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One device count."""

    devices: int
    status: Literal["ok", "failed", "timeout"]
    error: str | None = None
    script_fault: bool = False
    """Where the point failed: the script itself did (not only the measurement)."""
    oversubscribed: bool = False
    best_possible_efficiency: float | None = None
    """Where devices share cores: the most that any job could reach here, as a ratio."""
    samples_per_s: Interval | None = None
    ideal_samples_per_s: float | None = None
    efficiency: Interval | None = None
    """Through the solo rung of each launch where that exists, which is what is known best, else
    plain. None if there is no ok point at 1 device to compare with (see warnings)."""
    efficiency_from: Literal["solo-rung", "samples-per-s"] | None = None
    """Which of the two ``efficiency`` is."""
    efficiency_plain: Interval | None = None
    """samples_per_s against N times that at 1 device, as measured."""
    efficiency_drift_corrected: Interval | None = None
    """Through the solo rung of each launch; None if that did not run, or is other work."""
    step_s: Interval | None = None
    steps_measured: int = 0
    warmup_steps: int = 0
    batch_per_device: float | None = None
    """Samples per step and device (accumulated micro-batches together)."""
    global_batch: float | None = None
    time_share: TimeShare | None = None
    stalls: tuple[Stall, ...] = ()
    stalls_seen_up_to_steps: int = 0
    """Steps of the longest launch: what comes more rarely was not seen."""
    epoch: EpochTime | None = None
    """None if the length of an epoch is not known."""
    slow_rank: int | None = None
    """The straggler, where one rank is slower than the others beyond noise."""
    ranks: tuple[RankResult, ...] = ()
    step_quantiles: StepQuantiles | None = None
    launches: tuple[LaunchSummary, ...] = ()
    loop: LoopInfo | None = None
    warnings: tuple[str, ...] = ()
    all_reduce: tuple[AllReduceTime, ...] = ()
    """The job's gradient buckets, reduced alone, smallest first: medians over launches."""
    batch_times: tuple[BatchTime, ...] = ()
    """At 1 device, smallest first; empty if other batch sizes were not tried."""
    beginning: Beginning | None = None
    own_steps: OwnSteps | None = None
    stretch: Stretch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A named cause of lost points."""

    id: str
    devices: int
    severity: Literal["bottleneck", "contributor", "info"]
    rank: int | None
    regain: Interval
    evidence: dict[str, float | int | str | bool | None]
    advice: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machine and software, and how to repeat the run."""

    command: str
    started_at: str
    """ISO 8601, UTC."""
    sfbench: str
    python: str
    torch: str
    platform: str
    host: str
    cpu: str
    cores: int
    memory_bytes: int
    gpus: tuple[str, ...]
    threads_per_device: int
    pinned: bool
    backend: str | None
    git_commit: str | None
    script_sha256: str
    gpu_driver: str | None = None
    gpu_power_limits_w: tuple[float, ...] = ()
    nccl: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How a sweep divided its time, and the seeds of that: to repeat it."""

    seconds: float
    precision: float
    rounds: int | None
    warmup_steps: int | None
    rungs: tuple[Rung, ...]
    seeds: tuple[int, ...]
    """Of each launch's order of rungs and turns, in the order of the launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """``sweep.json``: complete for show, report and gate."""

    schema: int = SCHEMA
    name: str
    target: str
    script_args: tuple[str, ...] = ()
    device_type: Literal["cpu", "cuda", "xpu"]
    emulated: bool
    scaling: Literal["weak", "strong"]
    scaling_by_script: bool = False
    """Weak scaling was asked for, but the script keeps the global batch constant: strong."""
    interrupted: bool = False
    one_pass: bool = False
    """Launches visited each rung once, as those of a gate do, instead of going round in cycles."""
    points: tuple[Point, ...]
    diagnoses: tuple[Diagnosis, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    warnings: tuple[str, ...] = ()
    environment: Environment
    schedule: Schedule | None = None
    duration_s: float = 0.0
