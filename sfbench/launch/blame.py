"""After a launch: from how its ranks ended to what is said about it. Pure."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from sfbench.common.schema import PHASES, RankFailure
from sfbench.launch.outcome import LaunchError, LaunchOutcome
from sfbench.launch.stop_rules import LEAVE_S, StopCause, is_through

_MOST_NAMED = 4
"""Ranks described one by one in a message; the others are in the logs."""


_NO_ROOM = ("No space left on device", "Bus error", "Disk quota exceeded")
"""In the message of an exception: a disk or /dev/shm is full."""
_SHARED = (
    "Loader workers hand over batches in /dev/shm: give it more room (--shm-size of a container) "
    "or the script fewer workers."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """How one rank ended, or where it was when the launch was over."""

    rank: int
    """Global."""
    exit_code: int | None
    """When the launch was over; None: it still ran, and was ended."""
    phase: str
    steps: int
    log: str
    """Relative to the folder that holds the launch's logs."""
    last_lines: tuple[str, ...] = ()
    note: RankFailure | None = None
    """What the rank left about its failure."""
    frame: str | None = None
    """Where its main thread was, when stacks were asked for."""
    waits: bool = False
    """That is inside a collective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEnd:
    """All that is known when a launch is over."""

    cause: StopCause
    devices: int
    """Of the whole job."""
    ranks: tuple[RankEnd, ...]
    """Of this node, by local rank."""
    first_noted: int | None
    """The rank that left the oldest note."""
    record: Path | None
    """The complete record; always None on nodes after the first."""
    complete: bool
    """This node's part of the launch succeeded."""
    timeout_s: float
    oom_kills: int | None
    """Kills for memory since the start; None: the kernel does not tell."""
    elsewhere: LaunchError | None = None
    """What another node said."""
    full: tuple[str, ...] = ()
    """Places that the launch writes to in which no room is left."""
    folder_gone: str | None = None
    """The launch's own folder, where somebody has removed it."""
    server_gone: bool = False
    """The process that the ranks were forked from has ended, and took them along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """What becomes of a launch."""

    status: Literal["ok", "failed", "timeout", "interrupted"]
    error: LaunchError | None
    notes: tuple[str, ...] = ()


def judge(end: LaunchEnd) -> Blame:
    """Turn the end of a launch into its outcome.

    A complete record wins over any way the ranks may have ended after it.
    """
    if end.complete:
        return Blame(status="ok", error=None, notes=_notes(end))
    if end.cause is StopCause.STOPPED:
        return Blame(status="interrupted", error=_stopped(end))
    if end.elsewhere is not None:
        return Blame(status="failed", error=end.elsewhere)
    if end.cause is StopCause.TIMEOUT:
        return Blame(status="timeout", error=_timeout(end))
    if end.cause is StopCause.DISAGREE:
        return Blame(status="failed", error=_disagree(end))
    return Blame(status="failed", error=_failed(end))


def launcher_failed(message: str, start_s: float) -> LaunchOutcome:
    """The outcome where the launcher itself failed, or could not start the ranks."""
    error = LaunchError(
        kind="launcher",
        rank=None,
        message=message,
        last_lines=(),
        log=None,
        script_fault=False,
    )
    wall_s = time.monotonic() - start_s
    return LaunchOutcome(
        status="failed", record=None, error=error, notes=(), start_s=start_s, wall_s=wall_s
    )


def behind(ranks: Iterable[RankEnd]) -> tuple[RankEnd, ...]:
    """The ranks that the others wait for: fewest steps, then earliest phase, then not in a
    collective. All of them where nothing tells them apart."""
    running = [rank for rank in ranks if not is_through(rank.exit_code, rank.phase)]
    places = {_place(rank) for rank in running}
    return tuple(rank for rank in running if _place(rank) == min(places))


def _place(rank: RankEnd) -> tuple[int, int, bool]:
    return rank.steps, PHASES.index(rank.phase), rank.waits


def culprit(end: LaunchEnd) -> RankEnd | None:
    """The rank that failed first; None where no rank failed.

    A rank that died without a word comes before those with a note: what they note may be that it is
    gone. Among notes the oldest counts, since a rank may linger after writing it.
    """
    dead = [rank for rank in end.ranks if rank.exit_code]
    silent = [rank for rank in dead if rank.note is None]
    noted = [rank for rank in end.ranks if rank.rank == end.first_noted]
    return next(iter([*silent, *noted, *dead]), None)


def how(exit_code: int) -> str:
    """``was killed by SIGKILL`` or ``ended with exit code 3``."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


def _why_ended(end: LaunchEnd) -> str:
    if end.cause is StopCause.OVERSTAYED:
        return f"it stayed {LEAVE_S:.0f} s after the record"
    if end.cause is StopCause.TIMEOUT:
        return f"no progress for {end.timeout_s:g} s after the first record"
    return "the launch was over"


def _notes(end: LaunchEnd) -> tuple[str, ...]:
    notes = []
    for rank in end.ranks:
        if rank.exit_code is None:
            notes.append(f"rank {rank.rank} was ended: {_why_ended(end)}")
        elif rank.exit_code:
            notes.append(f"rank {rank.rank} {how(rank.exit_code)} after the record was complete")
    return tuple(notes)


def _failed(end: LaunchEnd) -> LaunchError:
    rank = culprit(end)
    if rank is None:
        return _left(end, end.ranks[0])
    if rank.note is not None:
        return _noted(end, rank, rank.note)
    code = rank.exit_code or 0
    if end.server_gone or end.folder_gone is not None:
        return _taken_away(end, rank)
    where = f", in {rank.frame}" if rank.frame else ""
    text = f"{_at(end)} rank {rank.rank} {how(code)}{_after(rank)}{where}"
    if code == -signal.SIGKILL:
        return _error(rank, "signal", text + _why_killed(end), True)
    if code == -signal.SIGBUS or (code > 0 and end.full):  # not even a note could be left
        shared = _SHARED if code < 0 else ""
        return _error(rank, "no-room", f"{text}: {_room(end, shared)}".rstrip(), False)
    kind = "signal" if code < 0 else "exit"
    return _error(rank, kind, f"{text}. Its last lines tell more.", True)


def _noted(end: LaunchEnd, rank: RankEnd, note: RankFailure) -> LaunchError:
    """The rank told by itself why it could not go on."""
    raised = note.kind == "exception"
    text = (
        f"{_at(end)} rank {rank.rank} {'raised' if raised else 'could not go on:'} {note.message}"
    )
    if raised and any(words in note.message for words in _NO_ROOM):
        shared = _SHARED if "/torch_" in note.message or "Bus error" in note.message else ""
        return _error(rank, "no-room", f"{text}. {_room(end, shared)}".rstrip(), False)
    return _error(rank, note.kind, text + _after_oom(end), note.script_fault)


def _room(end: LaunchEnd, shared: str) -> str:
    """Which places are full, as far as it can still be seen; ``shared``: shared memory was."""
    if not end.full:
        return f"No room was left on a disk or in /dev/shm. {shared}"
    places = " and ".join(end.full)
    return f"{places} {'is' if len(end.full) == 1 else 'are'} full: make room there. {shared}"


def _taken_away(end: LaunchEnd, rank: RankEnd) -> LaunchError:
    """What the ranks stand on is gone."""
    if end.folder_gone is not None:
        text = f"{_at(end)} {end.folder_gone} was removed while the ranks needed it."
        return _error(rank, "launcher", text, False)
    text = (
        f"{_at(end)} the process that the ranks are forked from was ended, and the ranks with it: "
        "someone or something killed it."
    )
    return replace(_error(rank, "launcher", text + _after_oom(end), False), rank=None)


def _after(rank: RankEnd) -> str:
    return f" after step {rank.steps}" if rank.steps else " before its first step"


def _left(end: LaunchEnd, rank: RankEnd, *, fault: bool = False) -> LaunchError:
    """A rank left with exit code 0 and without a word: not by the end of its script."""
    text = (
        f"{_at(end)} rank {rank.rank} left with exit code 0{_after(rank)}, before enough could be "
        "measured, and not by the end of its script: os._exit in a thread or in a library, or "
        "another program in its place (os.exec). A step is an update by a torch.optim optimizer "
        "in the process that was started; let that process train, and end by itself."
    )
    return _error(rank, "exit" if rank.steps else "no-steps", text, fault)


def _why_killed(end: LaunchEnd) -> str:
    if end.oom_kills:
        return ": out of memory. Give it a smaller batch or fewer loader workers."
    if end.oom_kills is None:
        return ", possibly for memory: see the kernel's log."
    return ", not for memory as far as its control group tells: someone or something sent it."


def _after_oom(end: LaunchEnd) -> str:
    return " (The kernel killed a process for lack of memory.)" if end.oom_kills else ""


def _disagree(end: LaunchEnd) -> LaunchError:
    through = [rank for rank in end.ranks if is_through(rank.exit_code, rank.phase)]
    dead = [rank for rank in through if rank.exit_code]
    waiting = [rank for rank in end.ranks if rank not in through]
    first, waits = (dead or through)[0], waiting[0].steps + 1
    others = f"{_named(waiting)} {'waits' if len(waiting) == 1 else 'wait'} in step {waits}"
    if dead:
        text = f"{_at(end)} rank {first.rank} {how(first.exit_code or 0)} while {others}."
        return _error(first, "signal" if (first.exit_code or 0) < 0 else "exit", text, True)
    if first.exit_code == 0 and first.phase not in {"done", "script-ended"}:
        return _left(end, first, fault=True)
    text = (
        f"{_at(end)} rank {first.rank}'s script ended after step {first.steps} while {others}: "
        "uneven inputs. Give all ranks the same number of batches, for example by drop_last=True "
        "in DistributedSampler and DataLoader."
    )
    return _error(first, "ranks-disagree", text, True)


def _timeout(end: LaunchEnd) -> LaunchError:
    stuck = behind(end.ranks) or end.ranks
    waiting = [rank for rank in end.ranks if rank not in stuck]
    last = f"{_named(stuck)} {_are(stuck)} behind" if waiting else "None is behind the others"
    places = "; ".join(map(_where, [*stuck[:_MOST_NAMED], *waiting[:1]]))
    text = (
        f"{_at(end)} no rank made progress for {end.timeout_s:g} s. {last}: {places}. The stacks "
        "of all threads are at the end of each rank's log. If a step may take that long, give a "
        "larger --timeout."
    )
    error = _error(stuck[0], "timeout", text, True)
    return error if len(stuck) == 1 else replace(error, rank=None)


def _where(rank: RankEnd) -> str:
    place = f"rank {rank.rank} in phase {rank.phase}, {rank.steps} steps done"
    return f"{place}, in {rank.frame}" if rank.frame else place


def _stopped(end: LaunchEnd) -> LaunchError:
    text = f"{_at(end)} the launch was interrupted."
    return replace(_error(end.ranks[0], "interrupted", text, False), rank=None)


def _error(rank: RankEnd, kind: str, message: str, script_fault: bool) -> LaunchError:
    return LaunchError(
        kind=kind,
        rank=rank.rank,
        message=message,
        last_lines=rank.last_lines,
        log=rank.log,
        script_fault=script_fault,
    )


def _at(end: LaunchEnd) -> str:
    return f"At {end.devices} device{'' if end.devices == 1 else 's'}"


def _named(ranks: Sequence[RankEnd]) -> str:
    numbers = ", ".join(str(rank.rank) for rank in ranks)
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"


def _are(ranks: Sequence[RankEnd]) -> str:
    return "is" if len(ranks) == 1 else "are"
