"""What the tool takes of a device's memory for itself, and what becomes of a lack of it.

It is told beforehand if that can be, on all ranks alike, and if it cannot all ranks leave the
rung out together, with the reason. What a script runs out of while the tool holds memory that the
script had not asked for is the tool's doing too: what was measured before is the result then.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

import torch

from sfbench.common.schema import RUNGS, Rung
from sfbench.probe.device import Accelerator
from sfbench.probe.hooks.model_hooks import forget_unsynced
from sfbench.probe.replaying.memory import (
    DeviceRoom,
    Keeping,
    Room,
    host_free_bytes,
    is_out_of_memory,
    place_for_weights,
    room_for_double,
)
from sfbench.probe.replaying.resize import SCALES
from sfbench.probe.replaying.weights import Snapshot, state_bytes
from sfbench.probe.state import State

NO_ROOM = (
    "There was too little memory for what sfbench takes beside the script (a copy of the weights, "
    "batches to replay, a batch twice as large), and nothing had been measured yet. The script is "
    "not at fault. Measure with --rungs train, which takes none, or give the script a smaller "
    "batch."
)


class KeptWeights:
    """The copy of weights and optimizer state while ranks run apart; all ranks call it alike."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._snapshot: Snapshot | None = None
        self._on_host = False
        self._peaks: dict[torch.device, int] = {}

    @property
    def kept(self) -> bool:
        """Whether there is a copy just now."""
        return self._snapshot is not None

    @property
    def on_device(self) -> bool:
        """Whether it takes the device's memory."""
        return self.kept and not self._on_host and self._state.clock.accelerator is not None

    def agree(self) -> str | None:
        """Where the copy will go, from what all ranks told; the reason where it cannot be made."""
        found = self._place(on_device=True)
        self._on_host = found.where == "host"
        return found.reason if found.where == "nowhere" else None

    def keep(self) -> str | None:
        """Make the copy. On an accelerator: on all ranks or on none, then with the reason."""
        reason = self._made()
        if self._state.clock.accelerator is None or reason == "":
            return None
        if not self._on_host and self._place(on_device=False).where == "host":
            self._on_host = True
            reason = self._made()
        return reason or None

    def put_back(self) -> None:
        """Ranks meet again, with the weights that they parted with."""
        if self._snapshot is not None:
            self._snapshot.restore()
            self._snapshot = None
            forget_unsynced(self._state.models.models)

    def _made(self) -> str:
        """Why it was not made on some rank; empty: it was on all."""
        state, hooks, reason = self._state, self._state.updates, ""
        try:
            self._snapshot = Snapshot(
                state.models.models, hooks.by_key.values(), hooks.scalers, on_host=self._on_host
            )
        except (RuntimeError, MemoryError) as error:
            if state.clock.accelerator is None or not is_out_of_memory(error):
                raise
            where = "host" if self._on_host else "device"
            reason = f"no memory: a copy of the weights did not fit on the {where} of rank "
            reason += str(state.rank)
        if state.clock.accelerator is None:
            return ""
        reasons = [told for told in state.control.all_gather(reason) if told]
        if reasons:
            self._snapshot = None
            state.clock.accelerator.give_back()
        return reasons[0] if reasons else ""

    def _place(self, *, on_device: bool) -> Keeping:
        state = self._state
        assert state.clock.accelerator is not None
        own = state.clock.accelerator.device
        needs = _needs(state, own)
        room = Room(
            host=socket.gethostname(),
            devices=tuple(self._room(device, needs[device], on_device) for device in needs),
            host_free=host_free_bytes(),
        )
        return place_for_weights(state.control.all_gather(room))

    def _room(self, device: torch.device, needs: int, on_device: bool) -> DeviceRoom:
        accelerator = Accelerator(device)
        memory = accelerator.memory()
        self._peaks[device] = peak = max(self._peaks.get(device, 0), memory.peak)
        return DeviceRoom(
            device=accelerator.identity()[1] or f"{device} of rank {self._state.rank}",
            needs=needs,
            total=memory.total,
            free=memory.beside(peak) if on_device else 0,
        )


def home_beside(own: torch.device, tensor: torch.Tensor) -> torch.device:
    """Where a tensor's copy counts: what lies on the host (counters) with the rank's device."""
    return tensor.device if tensor.device.type == own.type else own


def no_double(state: State) -> str | None:
    """Why a batch twice as large would not fit, from what the solo rung took; None: it would.

    A model may lie on several devices: of those that are not the rank's own, the highest peak of
    the whole run counts.
    """
    accelerator = state.clock.accelerator
    peak = state.loads.peak_bytes(RUNGS.index("solo"))
    if accelerator is None or not peak:
        return None
    own = accelerator.device
    for device in (own, *(other for other in _needs(state, own) if other != own)):
        memory = Accelerator(device).memory()
        reason = room_for_double(memory, peak if device == own else memory.peak)
        if reason is not None:
            return reason
    return None


def _needs(state: State, own: torch.device) -> dict[torch.device, int]:
    """Bytes of weights and optimizer state on each device of the rank's model."""
    models, optimizers = state.models.models, state.updates.by_key.values()
    return state_bytes(models, optimizers, lambda tensor: home_beside(own, tensor))


def ring_is_empty(state: State, rungs: Sequence[Rung]) -> str | None:
    """Why rungs that replay cannot run on some rank: there was no memory for one batch."""
    ring, loop = state.replay.ring, state.flow.loop
    if ring is None or loop is None or state.clock.accelerator is None or len(rungs) < 2:
        return None
    lacking = ring.lacks_memory and any(ring.count(key) == 0 for key in loop.loaders)
    ranks = [rank for rank, told in enumerate(state.control.all_gather(lacking)) if told]
    return f"no memory: no batch could be kept on rank {ranks[0]}" if ranks else None


def by_the_tool(state: State, weights: KeptWeights, error: BaseException) -> bool:
    """Whether memory ran out while the tool held some of it, or asked for a larger batch."""
    if not is_out_of_memory(error):
        return False
    ring = state.replay.ring
    if RUNGS[state.command.rung] in SCALES:
        return True
    if isinstance(error, torch.OutOfMemoryError):
        return weights.on_device or (ring is not None and ring.on_device)
    return weights.kept and not weights.on_device
