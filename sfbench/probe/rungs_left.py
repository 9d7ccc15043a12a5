"""Which rungs run, and why others do not. All ranks decide alike, and measuring goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sfbench.common.schema import Rung
from sfbench.probe.pace import WARMUP, Pace
from sfbench.probe.replaying.meetings import meetings
from sfbench.probe.replaying.own_memory import KeptWeights, no_double, ring_is_empty
from sfbench.probe.replaying.resize import SCALES
from sfbench.probe.state import State

MET = (
    "collectives of compiled code, of a library or of C++ reach the other ranks in every step: "
    "they cannot be answered on the rank"
)
GRAPH = (
    "forward and backward are replayed from a graph (torch.cuda.graph) that holds collectives: "
    "they cannot be switched off"
)


class RungsLeft:
    """Kept by the session. ``pace`` is set on rank 0."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.weights = KeptWeights(state)
        self.pace: Pace | None = None
        self._met = -1
        """Meetings when a block began on which there should be none; -1: none is looked at."""
        self._proven = state.world_size == 1
        """What is answered on the rank stays there."""

    def run_only(self, rungs: Iterable[Rung]) -> None:
        """These, from here on."""
        state = self._state
        state.rungs = tuple(rungs)
        if state.rungs == ("train",):  # nothing will be replayed: its batches take memory
            state.replay.ring = None
            state.keeper.listen(False)

    def leave_out(self, rungs: Sequence[Rung], reason: str) -> None:
        """These cannot run."""
        state = self._state
        state.unavailable |= dict.fromkeys(rungs, reason)
        self.run_only(rung for rung in state.rungs if rung not in rungs)
        if self.pace is not None:
            self.pace.leave_out(rungs)

    def apart(self) -> tuple[Rung, ...]:
        """Of those that run, the ones on which ranks do not meet."""
        return tuple(rung for rung in self._state.rungs if rung not in ("train", "cached"))

    def look(self) -> None:
        """At a border: graphs that were captured, and where the copy of the weights will go."""
        state, reason = self._state, None
        if state.graphs.captured and state.world_size > 1:
            reason = GRAPH
        elif state.command.kind == WARMUP and state.clock.accelerator is not None:
            reason = self.weights.agree() if self.apart() else None
        if reason is not None and self.apart():
            self.leave_out(self.apart(), reason)

    def before_measuring(self) -> None:
        """Whether there is a batch to replay."""
        reason = ring_is_empty(self._state, self._state.rungs)
        if reason is not None:
            self.leave_out([rung for rung in self._state.rungs if rung != "train"], reason)

    def can_curve(self) -> bool:
        """Whether the batch curve can be measured: at one device, with batches that can be cut."""
        ring = self._state.replay.ring
        if self._state.world_size > 1 or ring is None or not ring.can_resize():
            return False
        reason = no_double(self._state)
        if reason is not None:
            self.leave_out(("double",), reason)
        return True

    def take_memory(self, rung: Rung) -> bool:
        """What a rung needs, on all ranks or on none; then it is left out."""
        state, reason = self._state, None
        if rung in state.unavailable:
            return False
        if rung not in ("train", "cached") and not self.weights.kept:
            reason = self.weights.keep()
        if rung in SCALES and state.replay.ring is not None and reason is None:
            reason = state.replay.ring.resize(rung)
        if reason is not None:
            self.leave_out((rung,) if rung in SCALES else self.apart(), reason)
        return reason is None

    def block_begins(self, rung: Rung) -> None:
        """On the rung on which all run but should not meet, all come through if they do."""
        self._met = meetings() if rung == "unsynced" and not self._proven else -1

    def block_ended(self) -> bool:
        """Whether ranks kept to themselves; else no rung on which a rank waits for none can run."""
        if self._met < 0:
            return True
        seen = self._state.control.all_gather(meetings() > self._met)
        self._met, self._proven = -1, not any(seen)
        if not self._proven:
            self.leave_out(self.apart(), MET)
        return self._proven
