"""All that one rank notes for the correctness checks."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from sfbench.common.schema import RankFailure
from sfbench.probe.checkpace import Seen
from sfbench.probe.device import parameters_of
from sfbench.probe.hooks.taps import Listener, Taps, apart
from sfbench.probe.recording.call_site import CallSite
from sfbench.probe.recording.gradient_syncs import SyncCount, SyncWatch
from sfbench.probe.recording.learning_rates import RateWatch
from sfbench.probe.recording.loaders import LoaderWatch
from sfbench.probe.recording.opened_files import FileWatch
from sfbench.probe.recording.replicas import data_peers, weight_sums
from sfbench.probe.recording.splits import SplitWatch
from sfbench.probe.recording.states import StateWatch
from sfbench.probe.recording.sync_points import SyncPointWatch
from sfbench.probe.recording.unused import Search, UnusedWatch
from sfbench.probe.state import State
from sfbench.probe.stop import Refused
from sfbench.protocol import record_file
from sfbench.protocol.evidence import Model, RankEvidence

LOOKED_AT = 400
"""Updates that are looked at closely; what a script does it does by then."""
MISSING_FILE_S = 3.0
"""In a check, how long a rank that misses a file waits to see another one make it."""
HALF = 0.5
"""Of the gradients' bytes: own collectives that carry as much may average them."""
_PAUSE_S = 0.05


class Recorder:
    """Owns the hooks of the checks. ``joined``: all ranks have come out of DDP's Join."""

    def __init__(self, state: State, joined: Callable[[], None]) -> None:
        self._state = state
        self._early: list[Listener] = []
        self._weights: tuple[float | None, float | None] | None = None
        call_site = CallSite(state.job.root)
        self.loaders = LoaderWatch(
            call_site,
            state.loaders,
            real=lambda: not state.replay.active,
            trains=state.flow.trains,
            world_size=state.world_size,
        )
        self.sync_points = SyncPointWatch(
            state.heartbeat,
            state.pulse,
            state.collectives,
            self.loaders,
            part=self._part,
            on_joined=joined,
        )
        self.files = FileWatch(call_site, lambda: self.sync_points.count, state.job.launch_dir)
        self.splits = SplitWatch(call_site)
        self.syncs = SyncWatch(call_site)
        self.unused = UnusedWatch()
        self.rates = RateWatch(call_site)
        self.states = StateWatch(call_site, state.models.models, self.files.saved)

    def install(self, taps: Taps) -> None:
        """Put all hooks in place, outside those that measure."""
        self.files.on_written = self._leave_early
        self.loaders.shortens = self._state.job.probe.checks and self._state.job.probe.may_shorten
        for hooks in (
            self.loaders, self.sync_points, self.files, self.splits, self.syncs, self.unused,
            self.rates, self.states,
        ):  # fmt: skip
            hooks.install(taps)
        self._early = [taps.wrap(DistributedDataParallel, "forward", self._around_forward)]
        self._hear(apart(self._updated))

    def close(self) -> None:
        """The window of the checks is over: only what has to go on does."""
        for watch in (self.loaders, self.sync_points, self.syncs, self.unused, self.rates):
            watch.close()
        while self._early:
            self._early.pop().leave()
        self._hear(None)

    def _hear(self, heard: Callable[[Any], None] | None) -> None:
        self._state.updates.heard = heard
        self._state.updates.connect()

    def _around_forward(self, original: Any) -> Any:
        looks = apart(self._forward)

        def forward(model: Any, /, *inputs: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled() and looks(model, (inputs, kwargs)):
                with model.no_sync():
                    return original(model, *inputs, **kwargs)
            return original(model, *inputs, **kwargs)

        return forward

    def _forward(self, model: Any, batch: Any) -> bool:
        """Before a training forward of a DDP model; True: its gradients are not to be averaged."""
        count = self.syncs.forward(model)
        if self.loaders.wants_inputs:
            self.loaders.given(batch, count.line)
        return self.syncs.leaves_out(count)

    def _updated(self, optimizer: Any) -> None:
        """An optimizer has been stepped."""
        if self._state.pulse.updates <= LOOKED_AT or self.syncs.trying:
            self.files.trains()
            self.syncs.updated(optimizer)
            self.unused.updated()
            self.rates.updated(id(optimizer), optimizer)

    def _part(self, local_rank: int) -> None:
        """Another rank is inside a step, this one is elsewhere and will not come."""
        state = self._state
        other = state.rank - state.local_rank + local_rank
        steps = state.flow.ended or self._state.pulse.updates // max(1, len(state.updates.by_key))
        message = (
            f"rank {state.rank} stopped at step {steps}, rank {other} waits in step {steps + 1}: "
            "uneven inputs. Give all ranks the same number of batches, for example by "
            "drop_last=True in DistributedSampler and DataLoader."
        )
        failure = RankFailure(
            rank=state.rank, kind="ranks-disagree", message=message, script_fault=True
        )
        # At once: on its way out the script may come to what waits for the other ranks.
        state.refused = True
        self.leave()
        record_file.write_failure(Path(state.job.launch_dir), failure)
        raise Refused(failure.kind, failure.message)

    # -- in a check ------------------------------------------------------------------------------

    def obey(self, *, end_pass: bool, trial: bool) -> None:
        """Do until the next border what rank 0 has decided."""
        self.loaders.end_now = end_pass
        if trial and self._weights is None:
            self._weights = self._sums()  # the trial is no way to train
        self.syncs.try_without(trial)

    def seen(self) -> Seen:
        """What a check's schedule goes by."""
        passes, ended = self.loaders.passes()
        return Seen(passes, ended, self.syncs.superfluous())

    def _peers(self, models: list[Any], parameters: list[Any]) -> set[int]:
        peers = data_peers(models, parameters, self._state.world_size)
        sent = self.sync_points.bytes_after / max(1, self._state.pulse.updates)
        averaged = sent >= HALF * _nbytes(parameters)
        if not models and self.sync_points.shares_model and not averaged:
            # Activations travel, gradients do not: the ranks share one model, by hand.
            return {self._state.rank}
        return peers

    def _exchanges_outside(self, models: list[Any], parameters: list[Any]) -> bool:
        """Whether the script's own collectives may carry the gradients that DDP does not."""
        inside = {id(p) for model in models for p in model.parameters()}
        outside = _nbytes([p for p in parameters if id(p) not in inside])
        return self.sync_points.bytes_sent / max(1, self._state.pulse.updates) >= HALF * outside

    def _sums(self) -> tuple[float | None, float | None]:
        state = self._state
        return weight_sums(state.models.models, parameters_of(state.updates.by_key.values()))

    # -- the account -----------------------------------------------------------------------------

    def _leave_early(self) -> None:
        """What was written has to be known, however this rank ends."""
        folder = Path(self._state.job.launch_dir)
        record_file.write_evidence(folder, self.evidence(weights=False, ended=False))

    def leave(self, error: BaseException | None = None) -> None:
        """Write what was seen beside the other files of the launch, which gets no record."""
        folder = Path(self._state.job.launch_dir)
        record_file.write_evidence(folder, self.evidence(weights=False))
        if self._state.job.probe.checks and isinstance(error, FileNotFoundError):
            # Another rank may be about to make the file: once this one has left, nobody sees it.
            end_s = time.monotonic() + MISSING_FILE_S
            while self.files.setup and time.monotonic() < end_s and not self._is_made(folder):
                time.sleep(_PAUSE_S)

    def _is_made(self, folder: Path) -> bool:
        missing = {read.path for read in self.files.reads() if not read.found}
        return any(
            written.path in missing
            for other in record_file.read_evidence(folder)
            for written in other.written
        )

    def evidence(self, *, weights: bool = True, ended: bool = True) -> RankEvidence:
        """What was seen so far. ``weights``: with checksums; ``ended``: with sizes of files."""
        state = self._state
        models = list(state.models.models)
        optimizers = list(state.updates.by_key.values())
        parameters = list(parameters_of(optimizers))
        inside, outside = (self._weights or self._sums()) if weights else (None, None)
        return RankEvidence(
            rank=state.rank,
            host=socket.gethostname(),
            threads=torch.get_num_threads(),
            peers=tuple(sorted(self._peers(models, parameters))),
            loaders=self.loaders.loaders(),
            splits=tuple(self.splits.splits),
            written=self.files.written(ended=ended),
            reads=self.files.reads(),
            saves=tuple(self.states.saves),
            states_saved=self.states.states,
            models=tuple(
                _model(count, self.unused.searches.get(key))
                for key, count in self.syncs.counts.items()
            ),
            optimizers=self.rates.optimizers(),
            updates=self._state.pulse.updates,
            scaled=state.updates.scaled,
            skipped=tuple(state.updates.skips),
            weights=inside,
            weights_outside=outside,
            exchanges_outside=self._exchanges_outside(models, parameters),
            joins=self.sync_points.joins,
            takes_minimum=self.sync_points.takes_minimum,
            sync_cost_s=state.sync_cost_s,
        )


def _nbytes(parameters: list[Any]) -> int:
    return sum(p.numel() * p.element_size() for p in parameters)


def _model(count: SyncCount, search: Search | None) -> Model:
    return Model(
        line=count.line,
        backwards=tuple(window.backwards for window in count.windows),
        synced=tuple(window.synced for window in count.windows),
        looks_for_unused=bool(count.model.find_unused_parameters),
        looked=search.looked if search is not None else 0,
        unused=tuple(search.unused) if search is not None else (),
        search_s=search.mean_s if search is not None else None,
        own_hook=bool(getattr(count.model, "_comm_hooks", ())),
        wrapped=count.wrapped,
    )
