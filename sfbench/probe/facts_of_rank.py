"""What a rank tells the others of the loop that it found, and what it refuses by itself."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch.distributed as dist

from sfbench.probe.device import home_of, parameters_of
from sfbench.probe.loop.description import gives, gradient_bytes, is_sharded, samples_seen
from sfbench.probe.loop.discovery import Loop
from sfbench.probe.loop.verification import RankFacts
from sfbench.probe.replaying.unavailable_rungs import unavailable_rungs
from sfbench.probe.replaying.weights import checksum
from sfbench.probe.state import State
from sfbench.probe.stop import Refused


def rank_facts(state: State, loop: Loop, *, shares: bool) -> RankFacts:
    """What this rank saw. ``shares``: its model's forward holds collectives."""
    anchor = state.updates.by_key[_as_int(loop.anchor)]
    state.clock.follow(parameters_of([anchor]))
    steps = max(1, len([e for e in state.flow.kept if getattr(e, "key", None) == loop.anchor]))
    return RankFacts(
        anchor=list(state.updates.by_key).index(_as_int(loop.anchor)),
        updates_per_step=loop.updates_per_step,
        loaders=len(loop.loaders),
        samples_known=loop.samples_known and samples_seen(state.flow.kept, loop) > 0,
        group_size=dist.get_world_size() if dist.is_initialized() else 0,
        ddp_forwards=state.models.training_forwards,
        sharded=is_sharded(anchor),
        collective_bytes=state.collectives.bytes_sent // steps,
        gradient_bytes=gradient_bytes([anchor]),
        weights=checksum([anchor]),
        inputs=tuple(state.replay.fingerprints),
        shares_model=shares,
        device=home_of(parameters_of([anchor]), state.job.device_type).type,
    )


def left_out(state: State, facts: Sequence[RankFacts], *, joins: bool) -> dict[str, str]:
    """Rungs that this script cannot run, and why. ``joins``: it uses DDP's Join."""
    assert state.loop_info is not None
    return unavailable_rungs(
        state.job.probe.rungs,
        has_loader=any(fact.loaders for fact in facts),
        one_reads=not all(fact.loaders for fact in facts),
        joins=joins,
        wrapper=state.loop_info.wrapper,
        python_reducer=any(getattr(m, "_use_python_reducer", False) for m in state.models.models),
    )


def check_global_batch(state: State) -> None:
    """The batches have to be those of the global batch that was asked for.

    Raises:
        Refused: they are not.
    """
    wanted, info = state.job.probe.global_batch, state.loop_info
    if wanted and info is not None and not gives(info, wanted, state.world_size):
        raise Refused(
            "global-batch",
            f"--global-batch {wanted} asks for {wanted // state.world_size} samples per batch "
            f"and device, but the training loop gets {info.batch_per_fetch:g}: its batches do "
            "not come from a DataLoader with batch_size (or BatchSampler). Set the batch by "
            "the script's own arguments.",
        )


def _as_int(key: Hashable) -> int:
    assert isinstance(key, int)
    return key
