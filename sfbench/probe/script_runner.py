"""Runs a training script as a true ``__main__`` under measurement: what each rank executes."""

from __future__ import annotations

import atexit
import importlib.machinery
import importlib.util
import multiprocessing
import multiprocessing.process
import os
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any

import torch

from sfbench.common.plain_text import plain
from sfbench.common.schema import RankFailure, RankJob
from sfbench.probe import checkout
from sfbench.probe.device import asks_for_a_device
from sfbench.probe.fresh import OwnThreads, start_afresh
from sfbench.probe.hooks.batch_size_hooks import BatchSizeHooks
from sfbench.probe.hooks.change_hooks import ChangeHooks
from sfbench.probe.hooks.group_repairs import GroupHooks
from sfbench.probe.hooks.own_faults import is_own, script_traceback
from sfbench.probe.hooks.taps import Taps
from sfbench.probe.probe_group import no_way
from sfbench.probe.recording.call_site import CallSite
from sfbench.probe.replaying.memory import is_out_of_memory
from sfbench.probe.replaying.own_memory import NO_ROOM
from sfbench.probe.session import Session
from sfbench.probe.stop import Refused, StopRun
from sfbench.protocol import record_file
from sfbench.protocol.heartbeat import Heartbeat
from sfbench.protocol.rank_streams import flush_streams, to_log
from sfbench.protocol.record_file import write_failure

_WANTS_A_GPU = (
    "The script asks for a GPU, but this is a measurement on the CPU, which hides them from it. "
    "If this machine has GPUs that torch can use (see sfbench info), give --device cuda; else make "
    "the script train on the CPU."
)

_OWN_FAULT = (
    "A hook of sfbench failed. The script is not at fault, and nothing was measured. Please report "
    "it with the traceback in the rank's log:"
)


def rank_main(job: RankJob) -> None:
    """Run the script of a job in this process, which torchrun's variables describe.

    Returns when the measurement is complete. Leaves ``failure-<rank>.json`` and raises SystemExit
    with a code other than 0 if it is not.
    """
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    heartbeat = Heartbeat(Path(job.launch_dir), local_rank)
    heartbeat.phase("script")
    torch.set_num_threads(job.threads)
    session = Session(
        job, rank=rank, local_rank=local_rank, world_size=world_size, heartbeat=heartbeat
    )
    os.register_at_fork(after_in_child=session.leave_to_fork)
    code = 1
    try:
        _install(session, job, world_size)
        code = _guarded(session, job, rank)
    except Refused as refused:
        code = _refuse(session, rank, refused)
    finally:
        session.remove()
    _leave(code)


def _install(session: Session, job: RankJob, world_size: int) -> None:
    session.install()
    GroupHooks(session.script_ended, session.group_opened).install(session.taps)
    wanted = job.probe.global_batch
    if wanted is not None:
        if wanted % world_size:
            raise Refused(
                "global-batch",
                f"--global-batch {wanted} is not divisible by {world_size} devices.",
            )
        BatchSizeHooks(wanted // world_size).install(session.taps)
    if job.probe.changes is not None:
        ChangeHooks(job.probe.changes, CallSite(job.root).line).install(session.taps)
    if job.cores:
        _unpin_children(session.taps)
    _end_by_exit(session)


def _guarded(session: Session, job: RankJob, rank: int) -> int:
    """Run the script; turn each way in which it can end into an exit code."""
    try:
        _run_script(job)
        session.script_ended()
    except StopRun:
        return 0
    except SystemExit as end:
        return _exited(session, rank, end)
    except Refused:
        raise
    except BaseException as error:  # a script may raise KeyboardInterrupt and the like by itself
        return _raised(session, rank, error)
    return 0


def _raised(session: Session, rank: int, error: BaseException) -> int:
    refused = error.__context__
    if isinstance(refused, Refused):
        raise refused  # what was left on its way, as a capture into a graph, complained as well
    own = is_own(error)
    to_log("".join(traceback.format_exception(error)) if own else script_traceback(error))
    if session.provisional and record_file.promote(Path(session.job.launch_dir)):
        to_log("sfbench: another batch size failed; what was measured is kept\n")
        return 0
    if session.caused(error) or (own and is_out_of_memory(error)):
        return _lacks_memory(session, error)
    if session.job.device_type == "cpu" and asks_for_a_device(error):
        raise Refused("device", _WANTS_A_GPU) from error
    message = plain("".join(traceback.format_exception_only(error)).strip())
    if own:
        raise Refused("tool", f"{_OWN_FAULT} {message}") from error
    session.recorder.leave(error)
    message += no_way(message)
    _fail(session, rank, "exception", message, script_fault=True)
    return 1


def _lacks_memory(session: Session, error: BaseException) -> int:
    """The tool took more than there was: what was measured before is the result."""
    if record_file.promote(Path(session.job.launch_dir)):
        to_log("sfbench: it took more memory than there was; what was measured is kept\n")
        return 0
    raise Refused("memory", NO_ROOM) from error


def _run_script(job: RankJob) -> None:
    """As ``python script args`` would: ``__main__``, argv and path are the script's."""
    path = job.script
    if job.code is not None:
        checkout.enter(job.code)
    sys.path[0:1] = [os.getcwd() if job.module else job.root]  # noqa: PTH109
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__["__builtins__"] = __builtins__
    main.__dict__["__cached__"] = None
    if job.module:
        # Imports the packages above it. Spawned workers import it by the name in its spec.
        main.__spec__ = importlib.util.find_spec(job.module)
        main.__package__ = job.module.rpartition(".")[0]
    sys.modules["__main__"] = main
    sys.argv = [path, *job.args]
    start_afresh()
    # Workers that start by spawn rebuild path and folder from these.
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined] # noqa: PTH109
    source = Path(path).read_bytes()
    # This module's own __future__ imports are not the script's.
    code = compile(source, path, "exec", dont_inherit=True)
    threads = OwnThreads()
    threads.watch()
    try:
        exec(code, main.__dict__)
    finally:
        threads.forget()


def _exited(session: Session, rank: int, end: SystemExit) -> int:
    code = end.code if isinstance(end.code, int) else (0 if end.code is None else 1)
    if code == 0:
        session.script_ended()
        return 0
    text = "" if isinstance(end.code, int) else f": {end.code}"
    if text:
        to_log(f"{end.code}\n")
    session.recorder.leave()
    message = plain(f"the script exited with code {code}{text}")
    _fail(session, rank, "exit", message, script_fault=True)
    return code


def _refuse(session: Session, rank: int, refused: Refused) -> int:
    to_log(f"sfbench: {refused.message}\n")
    session.recorder.leave()
    _fail(session, rank, refused.kind, refused.message, script_fault=False)
    return 1


def _fail(session: Session, rank: int, kind: str, message: str, *, script_fault: bool) -> None:
    failure = RankFailure(rank=rank, kind=kind, message=message, script_fault=script_fault)
    write_failure(Path(session.job.launch_dir), failure)


def _unpin_children(taps: Taps) -> None:
    """Loader workers belong to the host, not to the device: they start with all its cores."""
    everything = range(os.cpu_count() or 1)

    def around(original: Any) -> Any:
        def start(process: Any) -> None:
            mine = os.sched_getaffinity(0)
            os.sched_setaffinity(0, everything)
            try:
                original(process)
            finally:
                os.sched_setaffinity(0, mine)

        return start

    taps.wrap(multiprocessing.process.BaseProcess, "start", around)


def _end_by_exit(session: Session) -> None:
    """``os._exit`` is a script's end as well; many use it to leave threads behind."""
    process = os.getpid()

    def around(original: Any) -> Any:
        def leave(status: int) -> None:
            over = session.finished or session.refused or os.getpid() != process
            if over or threading.current_thread() is not threading.main_thread():
                original(status)
            original(_exit_code(session, status))

        return leave

    session.taps.wrap(os, "_exit", around)


def _exit_code(session: Session, status: int) -> int:
    try:
        return _exited(session, session.rank, SystemExit(status))
    except Refused as refused:
        return _refuse(session, session.rank, refused)
    finally:
        flush_streams()


def _leave(code: int) -> None:
    """End as an interpreter would: exit handlers run, workers end, output is flushed."""
    atexit._run_exitfuncs()
    for child in multiprocessing.active_children():
        child.terminate()
    flush_streams()
    if code:
        raise SystemExit(code)
