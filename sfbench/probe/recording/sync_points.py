"""How often all ranks have met, and whether they still walk the same path.

No rank passes a *sync point* before all have come to it: a collective over all ranks, the start of
a group, the making of a DDP model. Ranks of one program count the same sync points. What two ranks
do at the same count may happen at the same time; what they do at different counts cannot.

A rank whose loader has run out, or that comes to a kind of sync point for the first time, first
looks at what the others are about to do. A rank that is inside a synchronised step, with fewer sync
points behind it, cannot come: the program has parted, and would hang there for half an hour or
crash on messages of the wrong size.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from sfbench.common.schema import PHASES
from sfbench.probe.hooks.collectives import COLLECTIVES, CollectiveHooks
from sfbench.probe.hooks.model_hooks import IN_BACKWARD
from sfbench.probe.hooks.pulse import Pulse
from sfbench.probe.hooks.taps import Taps
from sfbench.probe.hooks.weak import WeakTable
from sfbench.probe.recording.call_site import in_function
from sfbench.probe.recording.loaders import LoaderWatch
from sfbench.protocol.heartbeat import SYNC_POINT_KIND, SYNC_POINTS, Heartbeat

LOOK_S = 4.0
"""How long a rank looks for the others before it enters a sync point all the same."""
SURE_S = 0.2
"""How long a rank has to be seen elsewhere."""
FORWARD_S = 2.0
"""The same if it is in a forward, and in the same one."""
_PAUSE_S = 0.002
_KINDS = 64
"""Kinds of sync points that are looked at when they first come up."""
_LOOKS = 100
"""Collectives of which is seen where they were called."""
_UNEVEN = {"all_to_all", "all_to_all_single"}
"""Ranks may send different amounts in these."""
_ENDED = ("script-ended", "done")


class SyncPointWatch:
    """Wraps collectives, group starts and Join.

    ``collectives`` tells whether they are answered locally just now; ``loaders`` whether the
    training loader has ended by itself since the last batch; ``part`` is called with the number of
    a rank that is inside a step while this one is at a sync point: it must not return.
    ``on_joined`` is called when all ranks have come out of Join.
    """

    def __init__(
        self,
        heartbeat: Heartbeat,
        pulse: Pulse,
        collectives: CollectiveHooks,
        loaders: LoaderWatch,
        part: Callable[[int], None],
        on_joined: Callable[[], None],
    ) -> None:
        self._groups: WeakTable[bool] = WeakTable()
        """Whether a group is one of all ranks."""
        self._heartbeat = heartbeat
        self._collectives = collectives
        self._loaders = loaders
        self._part = part
        self._on_joined = on_joined
        self._pulse = pulse
        self._kinds: dict[tuple[str, int], float] = {}
        """Of sync points that have come up: what the heartbeat calls them."""
        self.bytes_sent = 0
        """Carried by collectives of any group since training began."""
        self.bytes_after = 0
        """Of these, carried between backward and update: gradients, or what comes of them."""
        self._looks = _LOOKS
        self.shares_model = False
        """Collectives are part of the forward, as in a tensor-parallel model made by hand."""
        self.count = 0
        self._joins = 0
        self.takes_minimum = False

    def install(self, taps: Taps) -> None:
        """Patch torch.distributed, DDP's constructor and Join."""
        for name in COLLECTIVES:
            if hasattr(dist, name):
                taps.wrap(dist, name, partial(self._around, name))
        for name in ("init_process_group", "new_group"):
            taps.wrap(dist, name, self._around_start)
        taps.wrap(DistributedDataParallel, "__init__", self._around_start)
        taps.wrap(Join, "__enter__", self._around_enter)
        taps.wrap(Join, "__exit__", self._around_exit)

    def close(self) -> None:
        """Enough was seen of where collectives are called: from here on they are counted only."""
        self._looks = 0

    def all_come(self) -> bool:
        """Whether all ranks will come to where this one is, right after an update.

        Inside Join a rank that has run out of inputs takes part in nothing else until all have.
        """
        while self._pulse.joining:
            others = [other["joined"] for _, other in self._heartbeat.others()]
            if -1 in others:
                return False
            if min(others, default=self._pulse.joined) >= self._pulse.joined:
                break
            time.sleep(_PAUSE_S)
        return True

    def may_decide(self) -> bool:
        """Whether all ranks have seen as much as this one, right after an update."""
        return not self._pulse.joining or (self._joins == 1 and self.all_come())

    def _around(self, name: str, original: Any) -> Any:
        """In every step of some scripts: as few calls as can be."""
        pulse, row, kinds = self._pulse, self._heartbeat.row, self._kinds
        collectives, loaders, main, ident = (
            self._collectives, self._loaders, self._pulse.main, threading.get_ident,
        )  # fmt: skip
        tensor, group, whole = torch.Tensor, dist.ProcessGroup, self._groups.by_id
        uneven = name in _UNEVEN

        def collective(*args: Any, **kwargs: Any) -> Any:
            if collectives.local:
                return original(*args, **kwargs)
            nbytes, of_all = 0, True
            for value in (*args, *kwargs.values()):
                if isinstance(value, tensor):
                    nbytes += value.numel() * value.element_size()
                elif isinstance(value, group):
                    known = whole.get(id(value))
                    of_all = self._is_of_all(value) if known is None else known
            self.bytes_sent += nbytes
            self.bytes_after += 0 if pulse.forward_phase else nbytes
            if self._looks > 0 or not pulse.begun:
                self._look_closer(name, args, kwargs)
            if of_all and ident() == main:
                size = 0 if uneven else nbytes
                kind = kinds.get((name, size))
                row[SYNC_POINT_KIND] = _kind(name, size) if kind is None else kind
                self.count = count = self.count + 1
                row[SYNC_POINTS] = count
                if pulse.begun and (kind is None or loaders.ended is not None):
                    self._come(name, size)
            return original(*args, **kwargs)

        return collective

    def _is_of_all(self, group: Any) -> bool:
        return self._groups.put(group, group.size() == dist.get_world_size())

    def _look_closer(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Only at the first ones, and at those before training."""
        if self._looks > 0:
            self._looks -= 1
            self.shares_model = self.shares_model or in_function()
        if not self._pulse.begun:
            self.takes_minimum |= name == "all_reduce" and _is_minimum(args, kwargs)

    def _come(self, name: str, nbytes: int) -> None:
        """To a kind of sync point for the first time, or after the loader has run out."""
        if self._pulse.joining:
            return
        new = (name, nbytes) not in self._kinds and len(self._kinds) < _KINDS
        if new:
            self._kinds[name, nbytes] = _kind(name, nbytes)
        if new or self._loaders.ended is not None:
            self._look(_kind(name, nbytes))

    def ended(self) -> None:
        """The script has ended on this rank: see that no other one waits for it in a step."""
        self.count += 1
        self._look(None)

    def _look(self, kind: float | None) -> None:
        """Wait until every rank of this node is at this sync point, or is known not to come.

        ``kind`` None: at the end of its script.
        """
        end_s = time.monotonic() + LOOK_S
        still: tuple[int, float, float] | None = None
        while time.monotonic() < end_s:
            others = dict(self._heartbeat.others())
            states = {rank: self._state(other, kind) for rank, other in others.items()}
            apart = [rank for rank, state in states.items() if state == "apart"]
            if not apart and "under way" not in states.values():
                return
            if not apart:
                still = None
            elif still is None or still[:2] != (apart[0], others[apart[0]]["in_step"]):
                still = apart[0], others[apart[0]]["in_step"], time.monotonic()
            elif time.monotonic() - still[2] > (SURE_S if _certain(still[1]) else FORWARD_S):
                self._part(apart[0])
            time.sleep(_PAUSE_S)

    def _state(self, other: Mapping[str, float], kind: float | None) -> str:
        """Of another rank, as seen from this sync_point: here | through | under way | apart."""
        if PHASES[int(other["phase"])] in _ENDED or (kind and other["sync_points"] > self.count):
            return "through"
        if kind and other["sync_points"] == self.count:
            ran_out = self._loaders.ended is not None
            return "apart" if other["sync_point_kind"] != kind and ran_out else "here"
        # A device may lag behind its host, which has then gone on to wait elsewhere.
        return "apart" if abs(int(other["in_step"])) > self._pulse.updates else "under way"

    def _around_start(self, original: Any) -> Any:
        def start(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            self.count += 1
            return value

        return start

    def _around_enter(self, original: Any) -> Any:
        def enter(join: Any) -> Any:
            if getattr(join, "_enable", True):
                self._pulse.joining, self._pulse.joined = True, 1.0
                self._joins += 1
                self._heartbeat.figures(joined=1.0)
            return original(join)

        return enter

    def _around_exit(self, original: Any) -> Any:
        def leave(join: Any, kind: Any, error: Any, trace: Any) -> Any:
            was_joining = self._pulse.joining
            if was_joining:
                self._heartbeat.figures(joined=-1.0)
            try:
                value = original(join, kind, error, trace)
            finally:
                self._pulse.joining, self._pulse.joined = False, 0.0
                self._heartbeat.figures(joined=0.0)
            if was_joining and kind is None:
                self._on_joined()
            return value

        return leave

    @property
    def joins(self) -> bool:
        """Whether the script has used Join."""
        return self._joins > 0


def _certain(in_step: float) -> bool:
    """Whether a rank cannot do without the others: in a backward, or beyond it.

    A training forward alone may be an evaluation that forgot to say so.
    """
    return in_step <= 0.0 or in_step % 1 >= IN_BACKWARD


def _kind(name: str, nbytes: int) -> float:
    """The same number on every rank."""
    return float(zlib.crc32(f"{name} {nbytes}".encode()))


def _is_minimum(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    values = (*args, *kwargs.values())
    single = any(isinstance(v, torch.Tensor) and v.numel() == 1 for v in values)
    return single and any(
        isinstance(v, dist.ReduceOp.RedOpType) and v == dist.ReduceOp.MIN for v in values
    )
