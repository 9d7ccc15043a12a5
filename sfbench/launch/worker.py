"""The first and last thing that happens in a rank: its log, its environment, its exit code."""

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from sfbench.common.plain_text import plain
from sfbench.common.schema import RankFailure, RankJob
from sfbench.guard.enter import enter as enter_guard
from sfbench.guard.ticket import Ticket
from sfbench.launch.logs import log_name
from sfbench.launch.prctl import die_with_parent
from sfbench.launch.stacks import SIGNAL
from sfbench.protocol import record_file
from sfbench.protocol.rank_streams import to_log
from sfbench.protocol.records import NODE_ADDRESS, NODE_FOLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStart:
    """What all ranks of one node are started with."""

    entry: str
    job: RankJob
    log_dir: Path
    nproc: int
    first_rank: int
    """Global rank of local rank 0."""
    world_size: int
    node_rank: int
    nnodes: int
    master_addr: str
    master_port: int
    run_id: str
    address: str | None = None
    """Where ranks of this node can be reached; None: one node."""
    guard: Ticket | None = None
    """None: the script may write where it likes."""


def environment(start: NodeStart, local_rank: int) -> dict[str, str]:
    """The variables that torchrun documents for its ranks."""
    rank = start.first_rank + local_rank
    own = {} if start.address is None else {NODE_ADDRESS: start.address}
    return {
        **own,
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(start.world_size),
        "LOCAL_WORLD_SIZE": str(start.nproc),
        "GROUP_RANK": str(start.node_rank),
        "GROUP_WORLD_SIZE": str(start.nnodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(start.world_size),
        "MASTER_ADDR": start.master_addr,
        "MASTER_PORT": str(start.master_port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": start.run_id,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }


def enter(local_rank: int, start: NodeStart) -> None:
    """Be one rank: called in a fresh process, never returns normally.

    Raises ``SystemExit`` with the entry's exit code: 0 if it returned, 1 if it raised (the
    traceback is in the log), what it gave to ``sys.exit`` otherwise.
    """
    _end_with_the_launcher()
    rank = start.first_rank + local_rank
    _open_log(start.log_dir / log_name(rank))
    os.environ.update(environment(start, local_rank))
    # Ranks that are killed leave nothing where it would stay.
    os.environ[NODE_FOLDER] = start.job.launch_dir
    # Set only for the length of an env:// rendezvous, by the probe: a script that makes its own
    # tcp:// store would take the agent's for its own and hang.
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    # The place of the script's folder, as in any interpreter that was given a script.
    sys.path.insert(0, start.job.root)
    if start.job.cores is not None:
        os.sched_setaffinity(0, start.job.cores[local_rank])
    sys.exit(_call(start, rank))


def _end_with_the_launcher() -> None:
    die_with_parent()
    host = multiprocessing.parent_process()
    if host is not None and not host.is_alive():  # ended before the line above took effect
        os._exit(1)


def _open_log(path: Path) -> None:
    """Send both streams to the log, whatever writes them, and let stacks be asked for."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    # With its own descriptor: a script may close or redirect the standard ones.
    faulthandler.enable(file=log, all_threads=True)
    faulthandler.register(SIGNAL, file=log, all_threads=True)


def _call(start: NodeStart, rank: int) -> int:
    """Call the entry and turn its end into an exit code."""
    try:
        if start.guard is not None:
            enter_guard(start.guard)
        _resolve(start.entry)(start.job)
    except SystemExit as end:
        return _exit_code(end.code)
    except BaseException as error:
        to_log(traceback.format_exc())
        _leave_note(Path(start.job.launch_dir), rank, error)
        return 1
    return 0


def _resolve(entry: str) -> Callable[[RankJob], None]:
    module, _, name = entry.partition(":")
    return cast("Callable[[RankJob], None]", getattr(importlib.import_module(module), name))


def _exit_code(code: object) -> int:
    """As the interpreter does: None is 0, text goes to stderr and is 1."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    to_log(f"{code}\n")
    return 1


def _leave_note(launch_dir: Path, rank: int, error: BaseException) -> None:
    """For what the entry did not note itself; a note that it left stays."""
    message = plain("".join(traceback.format_exception_only(error)).strip())
    failure = RankFailure(rank=rank, kind="exception", message=message, script_fault=False)
    record_file.write_failure(launch_dir, failure)
