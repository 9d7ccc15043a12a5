"""The state of a measurement in one rank: its hooks, its counts and what it has found out.

No behaviour: what describes, ends or writes a measurement takes this, and is called by the session.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sfbench.common.schema import LoopInfo, RankJob, Rung
from sfbench.probe.clock import clock_for
from sfbench.probe.hooks.collectives import CollectiveHooks
from sfbench.probe.hooks.device_marks import DeviceMarks
from sfbench.probe.hooks.events import Event
from sfbench.probe.hooks.fetching import FetchHooks
from sfbench.probe.hooks.graphs import GraphHooks
from sfbench.probe.hooks.loader_hooks import LoaderHooks
from sfbench.probe.hooks.model_hooks import ModelHooks
from sfbench.probe.hooks.pulse import Pulse
from sfbench.probe.hooks.saves import SaveHooks
from sfbench.probe.hooks.taps import Taps
from sfbench.probe.hooks.updates import UpdateHooks
from sfbench.probe.loads import LoadMeter
from sfbench.probe.loop.discovery import Loop
from sfbench.probe.loop.flow import Flow
from sfbench.probe.loop.step_table import StepTable
from sfbench.probe.pace import WARMUP, Command
from sfbench.probe.probe_group import Control
from sfbench.probe.recording.call_site import CallSite
from sfbench.probe.recording.late_steps import LateSteps
from sfbench.probe.replaying.batch_keeper import BatchKeeper
from sfbench.probe.replaying.replay import RungReplay
from sfbench.protocol.heartbeat import Heartbeat


class RankId(NamedTuple):
    """Which of all ranks this one is."""

    rank: int
    local_rank: int
    world_size: int


class Calls(NamedTuple):
    """What the hooks call."""

    known: Callable[[Loop], None]
    step_end: Callable[[], None]
    may_decide: Callable[[], bool]
    due: Callable[[], None]
    ask: Callable[[Event], None]


class State:
    """Single-threaded but for fetches by loader threads."""

    def __init__(self, job: RankJob, who: RankId, heartbeat: Heartbeat, calls: Calls) -> None:
        self.job = job
        self.rank, self.local_rank, self.world_size = who
        self.heartbeat = heartbeat
        self.started = time.perf_counter()
        self.finished = False
        self.refused = False
        """Another rank cannot be met any more."""
        self.provisional = False
        """Another batch size is being tried, and what was measured before is safe."""
        self.taps = Taps()
        self.clock = clock_for(job.device_type)
        self.control = Control(self.rank, self.world_size)
        self.steps = StepTable(self.clock, self.rank)
        self.flow = Flow(calls.known, self.steps.add, calls.step_end, calls.may_decide)
        self.pulse = Pulse(heartbeat.row)
        on_device = job.device_type != "cpu"
        self.inside = DeviceMarks(self.pulse, self.clock, self.flow) if on_device else None
        self.steps.inside = self.inside
        self.replay = RungReplay(self.flow.trains)
        self.loaders = LoaderHooks(self.pulse, self.replay)
        self.keeper = BatchKeeper(self.taps, self.loaders, self.replay)
        self.updates = UpdateHooks(self.pulse, self.flow, self.clock, calls.due)
        self.models = ModelHooks(self.pulse)
        self.saves = SaveHooks(calls.ask, self.rank, allow=job.probe.allow_saves)
        self.collectives = CollectiveHooks(
            CallSite(job.root).line, self.flow.later, trains=lambda: self.pulse.updates > 0
        )
        self.graphs = GraphHooks(lambda: self.collectives.local)
        self.fetching = FetchHooks(Path(job.launch_dir), self.rank, job.code)
        self.loads = LoadMeter(self.clock)
        self.late = LateSteps(self.rank, self.pulse, CallSite(job.root), lambda: self.flow.ended)
        self.unavailable: dict[str, str] = {}
        self.notes: list[str] = []
        self.command = Command(WARMUP)
        self.rungs: tuple[Rung, ...] = ("train",)
        self.loop_info: LoopInfo | None = None
        self.first_step_s = self.measuring_began = 0.0
        self.stop_reason = ""
        """Why the measurement ended: precision | seconds (rank 0 knows)."""
        self.next_training = 0
        """Parameters of what the script went on to train; 0: nothing else."""
        self.sync_cost_s: float | None = None
        """In a check, what superfluous gradient syncs cost per update (rank 0 knows)."""
