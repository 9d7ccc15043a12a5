"""Settings and the machine become a SweepPlan; the settings of its launches. Pure."""

from __future__ import annotations

from datetime import datetime

from sfbench.common.errors import UsageError
from sfbench.common.schema import LADDER
from sfbench.plan.machine import Machine
from sfbench.plan.node_environment import ALONE, NodePlace
from sfbench.plan.options import Settings
from sfbench.plan.sweep_plan import DeviceType, SweepPlan, Target

EMULATED = "emulated"
"""The reference workload that runs on the host, whatever devices there are."""
RANKS_PER_CORE = 64
"""More do not come to train: each is a process with torch in it."""
FIRST_SEED = 20_260_000


def make_plan(
    settings: Settings,
    target: Target,
    machine: Machine,
    now: datetime,
    place: NodePlace = ALONE,
) -> SweepPlan:
    """The plan of a sweep.

    Raises:
        UsageError: more devices than GPUs, no GPU where one is asked for, strong scaling without
            a global batch, fewer devices than nodes.
    """
    largest = -(-max(settings.devices) // place.nnodes)
    if max(settings.devices) < place.nnodes:
        raise UsageError(
            f"--nnodes {place.nnodes} needs a count of at least {place.nnodes} among --devices: "
            "every node takes part in the largest."
        )
    device_type = _device_type(settings, target, machine, largest)
    _check_scaling(settings)
    _check_reach(device_type, largest, machine)
    threads = settings.threads_per_device or _threads(device_type, largest, machine)
    return SweepPlan(
        target=target,
        devices=settings.devices,
        device_type=device_type,
        scaling="strong" if settings.global_batch is not None else settings.scaling,
        global_batch=settings.global_batch,
        seconds=settings.seconds,
        precision=settings.precision,
        warmup_steps=settings.warmup if isinstance(settings.warmup, int) else None,
        rounds=settings.rounds if isinstance(settings.rounds, int) else None,
        rungs=LADDER if settings.rungs == "all" else ("train",),
        threads_per_device=threads,
        timeout_s=settings.timeout,
        name=settings.name or f"{target.name}-{now:%Y%m%d-%H%M%S}",
        output=settings.output,
        allow_saves=settings.allow_saves,
        nnodes=place.nnodes,
        node_rank=place.node_rank,
        rdzv_endpoint=place.endpoint,
        notes=_notes(device_type, settings, target, machine),
    )


def pinning(plan: SweepPlan, devices: int, machine: Machine) -> tuple[tuple[int, ...], ...] | None:
    """Cores of each of a node's ``devices`` ranks, where the largest point has cores enough.

    All points are pinned or none, or they would not be comparable.
    """
    threads = plan.threads_per_device
    if plan.device_type != "cpu" or plan.per_node * threads > machine.usable_cores:
        return None
    if machine.quota is not None:
        return None
    return tuple(machine.cores[rank * threads : (rank + 1) * threads] for rank in range(devices))


def oversubscribed(plan: SweepPlan, devices: int, machine: Machine) -> bool:
    """Whether so many devices of a node have to share its cores (CPU only)."""
    return plan.device_type == "cpu" and devices * plan.threads_per_device > machine.usable_cores


def best_possible_efficiency(plan: SweepPlan, devices: int, machine: Machine) -> float:
    """What a job that keeps every core busy could reach: cores present / cores wanted, at most 1.

    The reference is one device, which itself may want more cores than there are.
    """
    if plan.device_type != "cpu":
        return 1.0
    per_device = min(plan.threads_per_device, machine.usable_cores)
    return min(1.0, machine.usable_cores / (devices * per_device))


def _threads(device_type: DeviceType, largest: int, machine: Machine) -> int:
    """Intra-op threads per device, the same at every device count.

    On CPU the device is made of them. On a GPU they are what the job gets anyway: what the person
    set, else what torchrun sets.
    """
    share = max(1, machine.usable_cores // largest)
    if device_type == "cpu":
        return share
    # torchrun leaves a rank by itself as it is.
    return machine.omp_threads or (share if largest == 1 else 1)


def _device_type(settings: Settings, target: Target, machine: Machine, largest: int) -> DeviceType:
    emulated = target.is_workload and target.name == EMULATED
    if settings.device == "cpu" or (settings.device == "auto" and emulated):
        return "cpu"
    problem = machine.gpu_problem
    if settings.device == "auto" and not machine.gpus and problem is None:
        return "cpu"
    if not machine.gpus or settings.device not in {"auto", machine.gpu_kind}:
        raise UsageError(
            f"--device {settings.device}: no GPU that this torch can use is visible"
            f"{f': {problem}' if problem else ''}. Install a build of torch for your GPUs and "
            "check CUDA_VISIBLE_DEVICES, or use --device cpu."
        )
    if largest > len(machine.gpus):
        raise UsageError(
            f"--devices asks for {largest} devices{_on_each(settings, largest)}, but "
            f"{len(machine.gpus)} GPU(s) are visible. Use --devices with counts up to "
            f"{len(machine.gpus)}{_on_each(settings, largest)}, or --device cpu."
        )
    return machine.gpu_kind


def _check_reach(device_type: DeviceType, largest: int, machine: Machine) -> None:
    """Refuse ranks that a machine cannot hold before a single one is started."""
    most = RANKS_PER_CORE * machine.usable_cores
    if device_type == "cpu" and largest > most:
        raise UsageError(
            f"--devices asks for {largest} ranks on {machine.usable_cores} core(s), each a process "
            f"of its own: at most {most} are started here ({RANKS_PER_CORE} for each core)."
        )


def _on_each(settings: Settings, largest: int) -> str:
    return "" if largest == max(settings.devices) else " on each node"


def _notes(
    device_type: DeviceType, settings: Settings, target: Target, machine: Machine
) -> tuple[str, ...]:
    """Where the CPU was asked for, nothing has to be said of GPUs."""
    asked = settings.device == "cpu" or (target.is_workload and target.name == EMULATED)
    if machine.gpu_note is None or (device_type == "cpu" and asked):
        return ()
    return (machine.gpu_note,)


def _check_scaling(settings: Settings) -> None:
    if settings.scaling == "strong" and settings.global_batch is None:
        raise UsageError("--scaling strong needs --global-batch N, the samples of all devices.")
