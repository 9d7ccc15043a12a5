"""What crosses the border between the launcher and the ranks. Standard library only.

``RankJob`` goes into every rank (pickled); ``LaunchRecord`` comes back from rank 0 of a launch
(``record.npz``). Import these names from ``sfbench.common.schema``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sfbench.protocol.changes import Changes
from sfbench.protocol.evidence import RankEvidence

RECORD_FORMAT = 1

Rung = Literal["train", "cached", "unsynced", "solo", "half", "double"]
# The first four are the ladder; half and double are solo at one device with batches cut and joined.
RUNGS: tuple[Rung, ...] = ("train", "cached", "unsynced", "solo", "half", "double")
StallKind = Literal["evaluation", "saving", "epoch-start", "collection", "other"]
LADDER: tuple[Rung, ...] = RUNGS[:4]

NODE_FOLDER = "SFBENCH_NODE_FOLDER"
"""In a rank's environment: a folder that goes with the launch, where ``sfbench.data`` may meet."""

NODE_ADDRESS = "SFBENCH_NODE_ADDRESS"
"""In a rank's environment where there are several nodes: where the others reach this one."""

# Columns of the step table that a launch record carries, one row per (rank, step), float64 each.
# rung is an index into RUNGS; block counts from 0 over the launch, -1 = before the first block;
# measured is 1 for steps of a block's measured part, 0 for warmup, drained or parked steps;
# turn is the rank whose solo turn it was, -1 elsewhere; other_s is validation, saving and the like
# inside the step's wall time (not in step_s). forward_s and update_s are the host's time inside the
# wrapped model's forward and the optimizer's step (on CPU); on accelerators the
# device's own time in them, in unmeasured steps of some rungs, and nan in all others.
# Backward and forward inside an update (a closure) are no part of update_s. The next five are the
# host's own times, for every step, measured or not: host_s is when the update before it had ended,
# by a clock that all ranks of a host share; between_s the script's own time from there to the first
# fetch or forward, without other_s; the others are seconds after host_s (nan: no such forward).
# saved_s is what saving took of other_s; pass_started is the number of
# passes over the training data that began. before_backward_s is the script's own time from the last
# forward to its backward, after_backward_s that from the last backward to the update, met_s what it
# spent of these two and of the time between steps in collectives of its own.
# elements: numbers in the tensors of the step's batches, on measured steps, where batches are of
# unlike length; else 0.
STEP_COLUMNS = (
    "rank", "step", "block", "cycle", "rung", "turn", "measured",
    "start_s", "step_s", "data_wait_s", "other_s", "samples",
    "forward_s", "update_s",
    "host_s", "between_s", "forward_began_s", "forward_ended_s", "update_ended_s",
    "saved_s", "pass_started", "before_backward_s", "after_backward_s", "met_s",
    "elements",
)  # fmt: skip

# Columns of the heartbeat table shared by the ranks of one node and their launcher (float64,
# one row per local rank): see sfbench.protocol.heartbeat. The last four tell the ranks of each
# other: in_step is the number of the update that a synced forward leads to, then minus the updates
# made;
# sync_points counts what all ranks have to come to, sync_point_kind tells the last one from others;
# joined is 0 outside DDP's Join, 1 + its updates so far, -1 on a rank that has run out of inputs.
HEARTBEAT_COLUMNS = (
    "phase", "steps", "samples_per_s", "half_width", "measured_s", "budget_s",
    "in_step", "sync_points", "sync_point_kind", "joined",
)  # fmt: skip
PHASES = ("starting", "script", "discovery", "warmup", "measuring", "done", "script-ended")


LONE_CYCLES = 6
"""Cycles in which one launch says something by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """How the probe measures inside a rank."""

    rungs: tuple[Rung, ...] = ("train",)
    """Rungs to run; ``train`` is always among them."""
    warmup_steps: int | None = None
    """Steps left out as warmup; None = found by MSER-5."""
    seconds: float = 10.0
    """Measuring budget of this launch, warmup not counted."""
    precision: float = 0.01
    """Stop early at this relative half-width of the 95 % interval of samples_per_s."""
    block_s: float = 0.5
    """Length aimed at for one block."""
    one_pass: bool = False
    """Each rung once, ``train`` first and longest, instead of in cycles: for a gate, whose unit is
    the launch. Precision ends nothing then."""
    global_batch: int | None = None
    """Strong scaling: samples per loader batch over all ranks; None = leave the script's batch."""
    allow_saves: bool = False
    """What the script writes stays: no guard of the user's files."""
    seed: int = 0
    """Seeds the order of rungs; the same on all ranks."""
    cycles: int = LONE_CYCLES
    """Cycles that ``seconds`` are divided into; fewer where there are many launches."""
    checks: bool = False
    """Watch only for faults (``sfbench check``): measure nothing, visit several epochs."""
    may_shorten: bool = True
    """In such a run loops over loaders may be ended early, alike on all ranks."""
    changes: Changes | None = None
    """What a trial of other settings builds otherwise than the script says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankJob:
    """One launch as each rank sees it. RANK, WORLD_SIZE and so on come in the environment."""

    script: str
    """Absolute path of the training script."""
    module: str = ""
    """Its dotted name if it runs as ``python -m`` would run it."""
    args: tuple[str, ...] = ()
    launch_dir: str
    """Private folder of this launch on this node: heartbeat, failures, record."""
    threads: int = 1
    """Intra-op threads per device, the same over the whole sweep."""
    cores: tuple[tuple[int, ...], ...] | None = None
    """Cores of each local rank where pinned, else None."""
    device_type: Literal["cpu", "cuda", "xpu"] = "cpu"
    probe: ProbeOptions = field(default_factory=ProbeOptions)
    code: CodeRoot | None = None
    """Set by the gate: which of two checkouts this launch has to run."""

    @property
    def root(self) -> str:
        """The folder that the script's own imports begin at."""
        return str(Path(self.script).parents[self.module.count(".")])


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRoot:
    """A checkout to run instead of the one that the person works in."""

    folder: str
    """Top of the checkout to run."""
    instead_of: str
    """Top of the person's own: nothing may be imported from there."""
    cwd: str
    """Where the script starts, inside ``folder``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFile:
    """A module that a rank had imported at the end."""

    path: str
    """Relative to the checkout; absolute where it came from the person's own instead."""
    sha256: str
    foreign: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """Written by a rank that could not go on (``failure-<rank>.json`` in the launch folder)."""

    rank: int
    kind: str
    """exception | exit | no-process-group | not-wrapped | no-steps | too-few-steps |
    own-launcher | global-batch | ranks-disagree | no-samples | device | device-graph | memory |
    unsteady | tool"""
    message: str
    """One or two sentences: what was seen and what to do; for an exception its last line."""
    script_fault: bool
    """True: the script itself failed (exit 5). False: it ran but cannot be measured (exit 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInfo:
    """Who a rank was."""

    rank: int
    local_rank: int
    host: str
    device: str
    pid: int
    threads: int
    cores: tuple[int, ...] = ()
    memory_bytes: int = 0
    """Of the device; 0 = not CUDA."""
    gpu_uuid: str = ""
    node: int = 0
    """Number of the node that it ran on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopInfo:
    """What the probe understood of the training loop, from rank 0."""

    samples_from: str
    """indices | batch | model-input | batches()"""
    fetches_per_step: float
    batch_per_fetch: float
    loader_workers: int | None
    """None: no DataLoader."""
    prefetch_factor: int | None
    persistent_workers: bool | None
    pin_memory: bool | None
    optimizer: str
    backend: str | None
    """torch.distributed backend of the script's group; None = no group (one device only)."""
    wrapper: str
    """ddp | fsdp | own-collectives | none"""
    parameters: int
    gradient_bytes: int
    bucket_bytes: tuple[int, ...] = ()
    find_unused_parameters: bool | None = None
    static_graph: bool | None = None
    gradient_as_bucket_view: bool | None = None
    buffers: int | None = None
    """Buffers of the wrapped model, which DDP may broadcast before each forward."""
    dtype: str = "float32"
    emulated: bool = False
    steps_per_pass: int | None = None
    """Steps of one pass over the training data; None if it has no end that is known."""
    nccl: str | None = None
    """Version of NCCL (or RCCL); None: another backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveInfo:
    """A torch.save of the script."""

    rank: int
    path: str
    keys: tuple[str, ...]
    """First state-dict keys seen, nested ones dotted."""
    written: bool
    """Whether it stays when the launch is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One correctness check."""

    id: str
    status: Literal["pass", "fail", "warn", "not-applicable"]
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceTime:
    """One size of the job's gradient buckets, reduced alone over the job's own group."""

    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCollective:
    """Collectives of the script itself that come in every step, from one line, on rank 0."""

    name: str
    line: str
    """``train.py:12``; empty if no line of the script is on the stack."""
    calls_per_step: float
    seconds: float
    """Mean of one call during warmup, before ranks run apart."""
    bytes: int
    """Of one call's tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RungLoad:
    """What the training thread of one rank did on one rung, over all its blocks."""

    rung: Rung
    steps: int
    wall_s: float
    cpu_s: float
    delay_s: float
    """Ready to run, but no core was free."""
    peak_bytes: int = 0
    """Most device memory that was allocated; 0 = no accelerator."""
    clock_hz: float = 0.0
    """Mean of the device's clock at the ends of its blocks, while it worked; 0 = not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """Where the time of one rank's host threads went."""

    rank: int
    fetch_batches: int = 0
    """Batches fetched by workers that could be watched; 0 = none could, fetch_* mean nothing."""
    fetch_s: float = 0.0
    """Wall time of the dataset (decode, transform, collate) per batch, in one worker."""
    fetch_cpu_s: float = 0.0
    fetch_delay_s: float = 0.0
    rungs: tuple[RungLoad, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LateStep:
    """What a rank was seen to do in a step whose first fetch or forward was late."""

    rank: int
    step: int
    kind: StallKind
    line: str
    """``train.py:12``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """What one launch measured, without its step table (that travels beside it as an array)."""

    format: int = RECORD_FORMAT
    world_size: int
    warmup_steps: int
    """Steps before the first block, discovery included."""
    ended_early: bool
    """The script ended by itself before the budget was used."""
    stop_reason: str
    """precision | seconds | script-ended | memory (more of it was needed than there was)"""
    ranks: tuple[RankInfo, ...]
    loop: LoopInfo
    unavailable: dict[str, str]
    """Rung -> why it could not run."""
    saves: tuple[SaveInfo, ...] = ()
    notes: tuple[str, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    loads: tuple[RankLoad, ...] = ()
    all_reduce: tuple[AllReduceTime, ...] = ()
    """Empty if it was not measured: one device, no DDP, only the train rung."""
    own_collectives: tuple[OwnCollective, ...] = ()
    kept_batches: int = 0
    """Batches that the rungs without a loader replay, one after the other and around."""
    evidence: tuple[RankEvidence, ...] = ()
    """What each rank saw for the correctness checks, by rank."""
    late: tuple[LateStep, ...] = ()
    modules: tuple[ModuleFile, ...] = ()
    """Where the gate asked for a checkout: what any rank imported from it, and from elsewhere."""
    setup_s: float = 0.0
    """From rank start to the first step's end: imports, model, data, first batch."""
    warmup_s: float = 0.0
    measured_s: float = 0.0
    """Wall time after warmup: what the budget counts."""
