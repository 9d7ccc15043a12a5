"""Do the ranks form one job? Decided alike on every rank from what all ranks saw. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfbench.common.units import things
from sfbench.probe.device import mismatch

SHARE_OF_GRADIENTS = 0.5
"""Own collectives must carry at least this part of the gradient bytes per step to count as sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """What one rank saw while the loop was discovered."""

    anchor: int
    """Which optimizer of the script, in the order of their making."""
    updates_per_step: int
    loaders: int
    samples_known: bool
    group_size: int
    """World size of the script's process group; 0 = it started none."""
    ddp_forwards: int
    sharded: bool
    """Parameters live in shards (FSDP, fully_shard)."""
    collective_bytes: int
    """Carried by the script's own collectives, per step."""
    gradient_bytes: int
    weights: float
    """Checksum of the weights after the last discovered step."""
    inputs: tuple[float, ...]
    """Fingerprints of the first batches."""
    shares_model: bool = False
    """Its forward holds collectives: a tensor-parallel model made by hand."""
    device: str = "cpu"
    """Type of the device that it trains on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why this is not one job on several devices."""

    kind: str
    message: str


def verify(facts: Sequence[RankFacts], world_size: int, device_type: str = "cpu") -> Refusal | None:
    """The reason why these ranks cannot be measured as one job on a type of device, or None."""
    wrong = mismatch([f.device for f in facts], device_type)
    if wrong:
        return Refusal(kind="device", message=wrong)
    if world_size > 1:
        refusal = _no_group(facts, world_size) or _differ(facts) or _independent(facts)
        if refusal:
            return refusal
    if not all(f.samples_known for f in facts):
        return Refusal(
            kind="no-samples",
            message="Steps were seen, but no samples: no DataLoader and no DDP forward, or batches "
            "without a tensor that has a leading dimension. Wrap the source of batches: "
            "`from sfbench import batches; "
            "for batch in batches(get_batch): ...`.",
        )
    return None


def wrapper(facts: Sequence[RankFacts]) -> str:
    """How gradients are kept equal: ddp | fsdp | own-collectives | none."""
    first = facts[0]
    if first.ddp_forwards:
        return "ddp"
    if first.sharded:
        return "fsdp"
    return "own-collectives" if len(facts) > 1 else "none"


def _no_group(facts: Sequence[RankFacts], world_size: int) -> Refusal | None:
    without = [rank for rank, f in enumerate(facts) if f.group_size == 0]
    if without:
        return Refusal(
            kind="no-process-group",
            message=f"{things(world_size, 'rank')} made optimizer updates, but rank "
            f"{without[0]} never "
            "called torch.distributed.init_process_group: these are independent copies, not one "
            "job. Start the group before the model is made and wrap the model in "
            "DistributedDataParallel.",
        )
    other = {f.group_size for f in facts} - {world_size}
    if other:
        return Refusal(
            kind="no-process-group",
            message=f"The script's process group has {other.pop()} ranks, {world_size} were "
            "started. Take rank and world size from the environment (RANK, WORLD_SIZE).",
        )
    return None


def _differ(facts: Sequence[RankFacts]) -> Refusal | None:
    # One rank may read for all, and hand on by collectives what it has read.
    handed_on = all(f.collective_bytes > 0 and f.samples_known for f in facts)
    shapes = [(f.anchor, f.updates_per_step, handed_on or f.loaders > 0) for f in facts]
    if len(set(shapes)) == 1:
        return None
    rank = next(r for r, shape in enumerate(shapes) if shape != shapes[0])
    return Refusal(
        kind="ranks-disagree",
        message=f"Rank {rank} runs another loop than rank 0 (optimizer, updates per step, loader): "
        f"{shapes[rank]} against {shapes[0]}. All ranks must train alike.",
    )


def _independent(facts: Sequence[RankFacts]) -> Refusal | None:
    first = facts[0]
    if all(f.ddp_forwards for f in facts) or all(f.sharded or f.shares_model for f in facts):
        return None
    if all(f.collective_bytes >= SHARE_OF_GRADIENTS * f.gradient_bytes for f in facts):
        return None
    equal_weights = len({f.weights for f in facts}) == 1
    equal_inputs = len({f.inputs for f in facts}) == 1
    if equal_weights and not equal_inputs:
        return None  # kept equal by means that are not torch.distributed functions
    seen = "their weights differ" if not equal_weights else "they train on the same batches"
    return Refusal(
        kind="not-wrapped",
        message=f"{things(len(facts), 'rank')} made optimizer updates without exchanging gradients "
        f"({things(first.collective_bytes, 'byte')} per step in collectives, "
        f"{things(first.gradient_bytes, 'byte')} of "
        f"gradients; {seen}): independent copies, not one job. Wrap the model in "
        "DistributedDataParallel and call the wrapper, not its .module.",
    )
