"""One measurement inside one rank: hooks feed it, it counts steps and steers blocks and rungs."""

from __future__ import annotations

import time
from functools import partial

from sfbench.common.schema import RUNGS, RankJob, Rung
from sfbench.probe import closing
from sfbench.probe.checkpace import CheckPace
from sfbench.probe.countdown import Countdown, Stage
from sfbench.probe.ending import SCRIPT_OVER, TURN_OVER, end_parked, script_ended
from sfbench.probe.facts_of_rank import check_global_batch, left_out, rank_facts
from sfbench.probe.hooks.events import Event
from sfbench.probe.hooks.next_training import NextTrainingHooks
from sfbench.probe.hooks.taps import Taps, apart
from sfbench.probe.loop.description import checked_loop, describe_loop
from sfbench.probe.loop.discovery import Loop
from sfbench.probe.loop.verification import verify, wrapper
from sfbench.probe.pace import BLOCK, DONE, WARMUP, BlockFacts, Command, Pace, no_steps
from sfbench.probe.recompiles import compilations
from sfbench.probe.recording.recorder import Recorder
from sfbench.probe.replaying.memory import host_free_bytes, ranks_on_host
from sfbench.probe.replaying.own_memory import by_the_tool
from sfbench.probe.replaying.resize import SCALES
from sfbench.probe.replaying.ring import Ring, ring_bytes
from sfbench.probe.rungs_left import RungsLeft
from sfbench.probe.so_far import SoFar
from sfbench.probe.state import Calls, RankId, State
from sfbench.probe.stop import Refused, StopRun, leave_at_once
from sfbench.protocol.heartbeat import STEPS, Heartbeat

PHASED: tuple[Rung, ...] = ("cached", "unsynced", "solo")
"""Where diagnoses compare phases."""
SETTLE_S = 1.0
"""At most so long do rungs that do not load wait for workers that still do."""


class Session(State):
    """What happens as its hooks call: steps are counted, blocks and rungs steered."""

    def __init__(
        self, job: RankJob, *, rank: int, local_rank: int, world_size: int, heartbeat: Heartbeat
    ) -> None:
        calls = Calls(
            self._on_loop_known, self._on_step_end, self._may_decide, apart(self._due), self._ask
        )
        super().__init__(job, RankId(rank, local_rank, world_size), heartbeat, calls)
        self.recorder = Recorder(self, self.joined)
        self.flow.check = partial(checked_loop, self)
        self._begun = False
        self._countdown = Countdown(self.updates.left)
        self.unmeasured = True
        """The next step leads up to the measured ones."""
        self._compiled = 0
        """How often torch.compile had compiled when the measured steps began."""
        self._pace: Pace | CheckPace | None = None
        self._left = RungsLeft(self)
        self._so_far = SoFar()

    def install(self) -> None:
        """Put all hooks in place."""
        if self.job.probe.rungs != ("train",):
            self.replay.ring = Ring(most_bytes=ring_bytes(host_free_bytes(), ranks_on_host()))
        self._connect(counting=self.flow.loop is not None)
        if self.inside is not None:
            self.inside.install(self.taps)
        for hooks in (self.loaders, self.updates, self.models, self.saves, self.collectives):
            hooks.install(self.taps)
        if self.inside is not None:
            self.graphs.install(self.taps)
        NextTrainingHooks(self, self.script_ended).install(self.taps)
        self.recorder.install(self.taps)
        self.keeper.listen(self.flow.loop is None)
        if self.measuring_began:
            self.recorder.close()
        if not self.job.probe.checks:
            self.late.start()
        self.heartbeat.phase("discovery")

    def remove(self) -> None:
        """Take all hooks away."""
        self.late.stop()
        self.updates.remove()
        if self.inside is not None:
            self.inside.remove()
        self.recorder.close()
        self.keeper.listen(False)
        self.taps.restore()

    def leave_to_fork(self) -> None:
        """In a forked child nothing is measured but what its dataset costs."""
        self.remove()
        self.fetching.install(Taps())

    def feed(self, event: Event) -> None:
        """Every hook calls this. Once the measurement is over, nothing of the script may go on."""
        if self.finished:
            closing.note_next_training(self)
            leave_at_once(0)
        if not self._begun:
            self._begun = True
            self.steps.begin()
            # The first step begins here, after this event: no time before it may be taken off it.
            now = time.perf_counter()
            event = event._replace(began=now, ended=now)
        if self.flow.loop is None:
            self.flow.optimizers = self.updates.count
        self.flow.feed(event)

    def _ask(self, event: Event) -> None:
        self.pulse.ask(event)

    def _connect(self, *, counting: bool) -> None:
        """While counting, hooks tell the flow itself: a few microseconds less in every step."""
        pulse, flow = self.pulse, self.flow
        if counting:
            pulse.tell, pulse.ask = flow.later.append, apart(flow.count)
            pulse.tell_apart, pulse.ordinary = flow.apart.append, flow.ordinary
        else:
            pulse.tell = pulse.ask = pulse.tell_apart = apart(self.feed)
            pulse.ordinary = set()
        self._reconnect()

    def _reconnect(self) -> None:
        for hooks in (self.loaders, self.updates, self.models):
            hooks.connect()

    # -- discovery -------------------------------------------------------------------------------

    def _on_loop_known(self, loop: Loop) -> None:
        self.replay.discovering = False
        self.updates.settle()
        self.models.counts_samples = loop.primary is None or loop.trained
        shares = self.recorder.sync_points.shares_model
        facts = self.control.all_gather(rank_facts(self, loop, shares=shares))
        if None in facts:
            raise Refused(
                "ranks-disagree",
                f"The script ended on rank {facts.index(None)} before rank {self.rank} had made "
                "enough steps to know its loop. All ranks must train alike.",
            )
        refusal = verify(facts, self.world_size, self.job.device_type)
        if refusal:
            raise Refused(refusal.kind, refusal.message)
        self.loop_info = describe_loop(self, loop, wrapper(facts))
        check_global_batch(self)
        self.unavailable = left_out(self, facts, joins=bool(self.recorder.sync_points.joins))
        self._left.run_only(r for r in self.job.probe.rungs if r not in self.unavailable)
        queued = max((self.loaders.queue_length(k) for k in loop.loaders), default=0)
        if self.rank == 0 and self.job.probe.checks:
            self._pace = CheckPace(self.job.probe, self.recorder.seen)
        elif self.rank == 0:
            on_device = self.job.device_type != "cpu"
            self._pace = self._left.pace = Pace(
                self.job.probe, self.rungs, self.world_size, queued, self._left.can_curve,
                on_device=on_device,
            )  # fmt: skip
        self._connect(counting=True)
        self.heartbeat.phase("warmup")
        self.first_step_s = time.perf_counter()

    def _may_decide(self) -> bool:
        return self.recorder.sync_points.may_decide()

    # -- steps and borders -----------------------------------------------------------------------

    def _on_step_end(self) -> None:
        """A step has ended that was not a matter of course."""
        self.pulse.row[STEPS] = self.flow.ended
        left = self.updates.left
        left[0] -= 1
        if left[0] <= 0:
            self._due()

    def _due(self) -> None:
        """The steps up to here have been made: a block's next stage begins, or a border."""
        if not self._countdown.passes() and self.recorder.sync_points.all_come():
            self._border()

    def joined(self) -> None:
        """All ranks come out of DDP's Join together, after different numbers of steps."""
        if self.flow.loop is not None:
            self._border()
        elif all(self.control.all_gather(self.flow.ready)):
            self.flow.decide()

    def _border(self) -> None:
        facts = self._close_block()
        while True:
            command = self._agree(facts)
            if command.kind == DONE:
                self.finish(ended_early=False)
                raise StopRun
            if not self._enter(command):
                facts = no_steps(time.perf_counter())
                continue
            if command.turn in (-1, self.rank):
                break
            # Parked: wait, without spinning, until the rank whose turn it is tells its end.
            if self.control.broadcast([0], command.turn) == [SCRIPT_OVER]:
                end_parked(self, self.finish_early)
                raise StopRun
            facts = no_steps(time.perf_counter())
        self._count_down(command)
        self.flow.step_began = time.perf_counter()
        self.steps.begin()
        self.loads.begin()

    def _count_down(self, command: Command) -> None:
        """Batches are kept for replay, and phases marked, only in steps that pass unmeasured.

        What is done before the measured steps is done one step before: it costs that step.
        """
        rung, on_device = RUNGS[command.rung], self.clock.accelerator is not None
        self.unmeasured = command.kind == BLOCK
        # Page-locked and device memory is not taken while a job is measured.
        keeps = command.kind == WARMUP or (command.skip > 0 and not on_device)
        self.keeper.listen(rung == "train" and keeps and self.replay.wants_more)
        stages: list[Stage] = []
        if command.kind == BLOCK:
            marked = command.skip // 2 if rung in PHASED else 0
            stages = [
                Stage(command.skip - 1 - marked, partial(self._mark_phases, marked > 0)),
                Stage(marked, self._before_measured),
                Stage(min(1, command.skip), partial(setattr, self, "unmeasured", False)),
            ]
        self._countdown.start(stages, command.steps)

    def _mark_phases(self, on: bool) -> None:
        if self.inside is not None:
            self.inside.phases = on

    def _before_measured(self) -> None:
        self._mark_phases(False)
        self.keeper.listen(False)
        self._compiled = compilations()

    def _close_block(self) -> BlockFacts:
        anew = False
        if self.command.kind == BLOCK:
            self.loads.end(self.command.rung, self.command.skip + self.command.steps)
            anew = compilations() != self._compiled
        self.flow.settle()
        usable = self._left.block_ended() and not anew
        seconds, samples = self.steps.close(self.command, usable=usable)
        if self.command.turn == self.rank:
            self.control.broadcast([TURN_OVER], self.rank)
        return BlockFacts(now_s=time.perf_counter(), step_s=seconds, samples=samples)

    def _agree(self, facts: BlockFacts) -> Command:
        self._left.look()
        command = self._pace.send(facts) if self._pace is not None else Command(DONE)
        if self._pace is not None:
            figures = self._pace.figures
            self.stop_reason = figures.stop_reason
            if isinstance(self._pace, CheckPace):
                self.sync_cost_s = self._pace.sync_cost_s
            self.heartbeat.figures(
                samples_per_s=figures.samples_per_s, half_width=figures.half_width,
                measured_s=figures.measured_s, budget_s=self.job.probe.seconds,
            )  # fmt: skip
        on_device = self.clock.accelerator is not None
        if self._pace and self._so_far.due(command, time.perf_counter(), on_device=on_device):
            command = command._replace(save=1)
        return Command(*self.control.broadcast(command))

    def _save_so_far(self, rung: Rung) -> None:
        """What follows is a risk: more memory is taken, or a script may insist on its own batch."""
        began = time.perf_counter()
        closing.write_so_far(self, self.recorder.evidence(), rung)
        self._so_far.written(began, time.perf_counter())
        self.provisional = rung in SCALES

    def caused(self, error: BaseException) -> bool:
        """Whether the script ran out of memory that this session takes beside it."""
        return by_the_tool(self, self._left.weights, error)

    def _enter(self, command: Command) -> bool:
        """Turn to what a command wants; False where there is no memory for it on some rank."""
        before, after = RUNGS[self.command.rung], RUNGS[command.rung]
        if command.save:
            self._save_so_far(after)
        if command.kind == BLOCK and self.measuring_began == 0.0:
            self._begin_measuring()
        if not self._left.take_memory(after):
            return False
        self.recorder.obey(end_pass=command.end_pass == 1, trial=command.trial == 1)
        if before == "train" and after != "train":
            self._settle()
        self.command = command
        self._switch(after)
        self._left.block_begins(after)
        if self.replay.ring is not None:
            # The same batches on each rung of a cycle, others on the next.
            block = command.skip + command.steps
            self.replay.ring.rewind(after, start=max(0, command.cycle) * block)
        if after == "train" and before != "train":
            for key in self.flow.training:
                self.loaders.drain(key)
        return True

    def _begin_measuring(self) -> None:
        self.measuring_began = time.perf_counter()
        self.collectives.listens = False
        self.heartbeat.phase("measuring")
        if not self.job.probe.checks:
            self.recorder.close()
        self._left.before_measuring()

    def _settle(self) -> None:
        """Let every rank's workers come to rest before a rung that does not load."""
        for key in self.flow.training:
            self.loaders.settle(key, SETTLE_S)
        self.control.all_gather(None)

    def _switch(self, rung: Rung) -> None:
        """Turn loaders, gradient sync and the script's own collectives to what a rung wants."""
        apart = rung not in ("train", "cached")
        if not apart:
            self._left.weights.put_back()
        self.models.sync_off = apart
        self.collectives.run_apart(apart)
        self.replay.active = rung != "train"
        self._reconnect()

    # -- the end ---------------------------------------------------------------------------------

    def finish(self, *, ended_early: bool) -> None:
        """Gather all ranks' records on rank 0 and write them; then this session is over."""
        self._switch("train")
        if not (ended_early or self.job.probe.checks):
            closing.refuse_unsteady(self)
        seen = self.recorder.evidence()
        write = partial(closing.write_record, self, seen, ended_early=ended_early)
        if self.clock.accelerator is not None:
            # Timing all-reduce takes memory and all ranks: what was measured is safe before.
            write(all_reduce=())
        all_reduce = () if ended_early else closing.all_reduce_times(self)
        write(all_reduce=all_reduce)
        # Nobody leaves before the record is safe.
        self.control.all_gather(None)
        self.heartbeat.phase("done")
        self.finished = True
        self._connect(counting=False)

    def script_ended(self) -> None:
        """The script came to its end by itself on this rank."""
        if not self.finished:
            script_ended(self, self.recorder.sync_points.ended, self.finish_early)

    def group_opened(self) -> None:
        """The script opens a process group: not all ranks need be there for another one."""
        if self.finished:
            closing.note_group_again(self)
            leave_at_once(0)

    def finish_early(self) -> None:
        """The script has ended before the measurement was over: all ranks come here."""
        self.finish(ended_early=True)
