"""Which rungs a script cannot run, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sfbench.common.schema import Rung


def unavailable_rungs(
    wanted: Sequence[Rung],
    *,
    has_loader: bool,
    joins: bool,
    wrapper: str,
    one_reads: bool = False,
    python_reducer: bool = False,
) -> dict[str, str]:
    """Rung -> reason, for those of ``wanted`` that cannot run; ``train`` always can.

    ``joins``: the script uses DDP's Join. ``wrapper``: how gradients are kept equal, as in
    LoopInfo. ``one_reads``: some ranks have no loader, others read for them. ``python_reducer``:
    DDP averages gradients by Python hooks (torch._dynamo's optimize_ddp="python_reducer").
    """
    if not has_loader:
        reason = "no DataLoader: batches come from the script's own code (see sfbench.batches)"
        return {rung: reason for rung in wanted if rung != "train"}
    if joins:
        reason = "DDP's Join: ranks may run out of inputs at different steps"
        return {rung: reason for rung in wanted if rung != "train"}
    apart = [rung for rung in wanted if rung in ("unsynced", "solo")]
    reasons = {
        "parameters are sharded: every step needs the other ranks": wrapper == "fsdp",
        "gradients are averaged by the script itself, outside DDP": wrapper == "own-collectives",
        "one rank reads for the others, which have no batches by themselves": one_reads,
        "DDP's Python reducer decides during backward, by collectives of compiled code": (
            python_reducer
        ),
    }
    held = [reason for reason, holds in reasons.items() if holds]
    return dict.fromkeys(apart, held[0]) if held else {}
