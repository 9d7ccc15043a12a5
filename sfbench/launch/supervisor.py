"""Watch over the ranks of one launch on one node, and end them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import psutil

from sfbench.common.schema import HEARTBEAT_COLUMNS, PHASES
from sfbench.launch import logs, oom, room, stacks, tree
from sfbench.launch.blame import LaunchEnd, RankEnd
from sfbench.launch.outcome import LaunchError, OnProgress, Progress
from sfbench.launch.stop_rules import RankView, StopCause, View, cause, is_through
from sfbench.launch.watch import Watch
from sfbench.plan.sweep_plan import NodeJob
from sfbench.protocol import heartbeat, record_file

_POLL_S = 0.1
_PROGRESS_S = 0.2
_STACKS_S = 3.0
_REAP_S = 1.0
_LOG_TIMEOUTS = 10
"""So many time-outs may pass before the first step, if logs grow."""
_PHASE = HEARTBEAT_COLUMNS.index("phase")
_STEPS = HEARTBEAT_COLUMNS.index("steps")
_IN_STEP = HEARTBEAT_COLUMNS.index("in_step")


class Supervisor:
    """One launch, from before its ranks start until nothing of it is left.

    ``stop_fd`` becomes readable when the launch has to end at once.
    """

    def __init__(self, node_job: NodeJob, on_progress: OnProgress, stop_fd: int) -> None:
        self._job = node_job
        self._on_progress = on_progress
        self._launch_dir = Path(node_job.job.launch_dir)
        node_job.log_dir.mkdir(parents=True, exist_ok=True)
        self._beats = heartbeat.create(self._launch_dir, node_job.nproc)
        self._processes: Sequence[BaseProcess] = ()
        self._first_rank = node_job.first_rank
        self._keep = frozenset(p.pid for p in tree.children())
        self._oom_kills = oom.kills()
        self._stop_fd = stop_fd
        self._elsewhere: LaunchError | None = None
        self._complete_s: float | None = None
        self._noted_s: float | None = None
        self._told: tuple[float, bytes] = (-np.inf, b"")
        self.end: LaunchEnd | None = None
        """Set when the launch is over."""

    def close(self) -> None:
        """End whatever the launch left running."""
        tree.end(self._descendants)

    def watch_over(self, processes: Sequence[BaseProcess]) -> None:
        """Take charge of the ranks' processes, by local rank. Called once, before any ``tick``."""
        self._processes = processes
        log_s = _LOG_TIMEOUTS * self._job.timeout_s
        self._watch = Watch(len(processes), time.monotonic(), log_s)

    def hear(self, error: LaunchError | None) -> None:
        """Take note of what another node says; None: it says nothing."""
        if error is not None and error.kind == "memory":  # of the tool's own need
            record_file.promote(self._launch_dir)
        self._elsewhere = error

    def tick(self) -> LaunchEnd | None:
        """Wait a moment, or until something happens; tell whether the launch is over."""
        running = [p.sentinel for p in self._processes if p.exitcode is None]
        stopped = self._stop_fd in wait([*running, self._stop_fd], timeout=_POLL_S)
        now_s = time.monotonic()
        self._read(now_s)
        self._tell(now_s)
        found = cause(self._view(now_s, stopped))
        if found is not None:
            self._finish(found)
        return self.end

    def _read(self, now_s: float) -> None:
        self._watch.see(now_s, self._beats, self._log_sizes())
        phases = [self._phase(rank) for rank in range(self._job.nproc)]
        codes = [p.exitcode for p in self._processes]
        # A record may come before its ranks go on to what puts it at risk, as other batch sizes do.
        if self._complete_s is None and self._is_complete() and all(map(is_through, codes, phases)):
            self._complete_s = now_s
        if self._noted_s is None and record_file.read_failures(self._launch_dir):
            self._noted_s = now_s
        if any(map(is_through, codes, phases)):
            for rank, process in enumerate(self._processes):
                if process.exitcode is None and process.pid is not None:
                    self._watch.see_cpu(now_s, rank, tree.cpu_s(process.pid))

    def _is_complete(self) -> bool:
        """The first node writes the record; on others, all ranks have done their part."""
        if self._job.node_rank == 0:
            return (self._launch_dir / record_file.FILE_NAME).exists()
        return all(self._phase(rank) == "done" for rank in range(self._job.nproc))

    def _tell(self, now_s: float) -> None:
        """Report the progress of local rank 0 if it changed, a few times per second at most."""
        row = self._beats[0].copy()
        last_s, last = self._told
        if now_s - last_s >= _PROGRESS_S and row.tobytes() != last:
            self._told = (now_s, row.tobytes())
            self._on_progress(progress(row.tolist()))

    def _view(self, now_s: float, stopped: bool) -> View:
        ranks = tuple(
            RankView(
                exit_code=process.exitcode,
                phase=self._phase(rank),
                quiet_s=self._watch.quiet_s(now_s, rank),
            )
            for rank, process in enumerate(self._processes)
        )
        return View(
            ranks=ranks,
            idle_s=self._watch.idle_s(now_s),
            timeout_s=self._job.timeout_s,
            record_s=None if self._complete_s is None else now_s - self._complete_s,
            note_s=None if self._noted_s is None else now_s - self._noted_s,
            elsewhere=self._elsewhere is not None,
            stopped=stopped,
        )

    def _finish(self, found: StopCause) -> None:
        """Note how all stand, then end them."""
        codes = [process.exitcode for process in self._processes]
        before = self._log_sizes()
        full, server_gone = room.full(self._places()), self._server_gone()
        if found is StopCause.TIMEOUT:
            self._ask_for_stacks()
        notes = record_file.read_failures(self._launch_dir)
        ranks = tuple(self._rank_end(i, codes[i], before[i]) for i in range(len(codes)))
        self._end_ranks()
        self.end = LaunchEnd(
            cause=found,
            devices=self._job.devices,
            ranks=ranks,
            first_noted=notes[0].rank if notes else None,
            complete=self._is_complete(),
            record=self._record(),
            timeout_s=self._job.timeout_s,
            oom_kills=self._new_oom_kills(),
            elsewhere=self._elsewhere if found is StopCause.ELSEWHERE else None,
            full=full,
            folder_gone=None if self._launch_dir.exists() else str(self._launch_dir),
            server_gone=server_gone,
        )

    def _rank_end(self, local_rank: int, exit_code: int | None, log_bytes: int) -> RankEnd:
        rank = self._first_rank + local_rank
        log = self._log(local_rank)
        dump = logs.read_from(log, log_bytes)
        notes = [n for n in record_file.read_failures(self._launch_dir) if n.rank == rank]
        return RankEnd(
            rank=rank,
            exit_code=exit_code,
            phase=self._phase(local_rank),
            steps=self._steps(local_rank),
            log=f"{log.parent.name}/{log.name}",
            last_lines=logs.last_lines(log),
            note=notes[0] if notes else None,
            frame=stacks.innermost(dump) or stacks.crash_site(logs.tail(log)),
            waits=stacks.waits_for_others(dump),
        )

    def _ask_for_stacks(self) -> None:
        running = [i for i, process in enumerate(self._processes) if process.exitcode is None]
        pids = [pid for i in running if (pid := self._processes[i].pid) is not None]
        paths = [self._log(i) for i in running]
        stacks.request(pids, lambda: tuple(map(logs.size_bytes, paths)), _STACKS_S)

    def _end_ranks(self) -> None:
        tree.end(self._descendants)
        for process in self._processes:
            process.join(_REAP_S)

    def _descendants(self) -> list[psutil.Process]:
        return tree.children(self._keep)

    def _server_gone(self) -> bool:
        """The fork server, or what it tells its ranks' ends by, was there before and is not now."""
        return any(map(tree.has_ended, self._keep))

    def _places(self) -> tuple[str, ...]:
        """Where a launch writes to."""
        folder = Path(self._job.job.script).parent
        places = (tempfile.gettempdir(), self._launch_dir, self._job.log_dir, folder)
        return (room.SHARED_MEMORY, *map(str, places))

    def _record(self) -> Path | None:
        path = self._launch_dir / record_file.FILE_NAME
        return path if path.exists() else None

    def _new_oom_kills(self) -> int | None:
        now = oom.kills()
        return None if now is None or self._oom_kills is None else now - self._oom_kills

    def _phase(self, local_rank: int) -> str:
        return PHASES[int(self._beats[local_rank, _PHASE])]

    def _steps(self, local_rank: int) -> int:
        """Updates so far, also of a loop that is not known yet."""
        in_step = self._beats[local_rank, _IN_STEP]
        updates = -in_step if in_step < 0 else np.floor(in_step) - 1
        return int(max(self._beats[local_rank, _STEPS], updates))

    def _log(self, local_rank: int) -> Path:
        return self._job.log_dir / logs.log_name(self._first_rank + local_rank)

    def _log_sizes(self) -> tuple[int, ...]:
        return tuple(logs.size_bytes(self._log(rank)) for rank in range(self._job.nproc))


def progress(row: Sequence[float]) -> Progress:
    """A row of the heartbeat table as a value."""
    values = dict(zip(HEARTBEAT_COLUMNS, row, strict=True))
    return Progress(
        phase=PHASES[int(values["phase"])],
        steps=int(values["steps"]),
        samples_per_s=values["samples_per_s"],
        half_width=values["half_width"],
        measured_s=values["measured_s"],
        budget_s=values["budget_s"],
    )
