"""What a process is about to do to files: a system call's arguments in words for the journal."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from sfbench.guard.calls import HERE, Call
from sfbench.guard.filter import WRITES
from sfbench.guard.journal import Answer, Journal

_NO_REPLACE, _EXCHANGE = 1, 2
_REMOVE_FOLDER = 0x200
_FOLLOW = 0x400
_EMPTY_PATH = 0x1000
_PAGE = 4096
_OWN = re.compile(r"^/(?:proc/(?:self|thread-self)|dev/fd(?=/))")
_EINVAL = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCall:
    """A call that a task has stopped in."""

    task: int
    call: Call
    arguments: tuple[int, ...]

    def flags(self) -> int:
        """Its flags; 0 if it has none."""
        place = self.call.flags
        return 0 if place is None else self.arguments[place] & 0xFFFFFFFF

    def path(self, *, follows: bool | None = None) -> str:
        """Absolute, without links; the last one stays if the call does not follow it."""
        follow = self.call.follows if follows is None else follows
        at = None if self.call.at is None else self.arguments[self.call.at]
        return self._resolved(self.arguments[self.call.path], at, follow)

    def other(self) -> str:
        """The second path."""
        assert self.call.other is not None
        at = None if self.call.other_at is None else self.arguments[self.call.other_at]
        return self._resolved(self.arguments[self.call.other], at, False)

    def open_path(self) -> str:
        """Of the descriptor that it is about."""
        return os.readlink(f"/proc/{self.task}/fd/{self.arguments[0] & 0xFFFFFFFF}")  # noqa: PTH115

    def memory(self, address: int, size: int) -> bytes:
        """What the process has there."""
        with open(f"/proc/{self.task}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
            memory.seek(address)
            return memory.read(size)

    def _resolved(self, address: int, at: int | None, follow: bool) -> str:
        raw = self._text(address) if address else ""
        if at is None or ctypes_int(at) == HERE:
            base = f"/proc/{self.task}/cwd"
        else:
            base = f"/proc/{self.task}/fd/{ctypes_int(at)}"
        if not raw:
            return os.readlink(base)  # noqa: PTH115
        inside = "fd" if raw.startswith("/dev/fd/") else ""
        raw = _OWN.sub(f"/proc/{self.task}" + (f"/{inside}" if inside else ""), raw)
        whole = raw if raw.startswith("/") else f"{os.readlink(base)}/{raw}"  # noqa: PTH115
        if follow:
            return os.path.realpath(whole)
        folder, name = os.path.split(whole.rstrip("/") or "/")
        if name in ("", ".", ".."):
            return os.path.realpath(whole)
        return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118

    def _text(self, address: int) -> str:
        found = b""
        while b"\0" not in found and len(found) < 2 * _PAGE:
            start = address + len(found)
            found += self.memory(start, _PAGE - start % _PAGE)
        return os.fsdecode(found.partition(b"\0")[0])


def ctypes_int(value: int) -> int:
    """The lower 32 bits of an argument, with their sign."""
    return int(struct.unpack("i", struct.pack("I", value & 0xFFFFFFFF))[0])


def act(question: AskedCall, journal: Journal, is_real: Callable[[str], bool]) -> Answer:
    """Tell the journal; ``is_real``: a path that nothing is to be kept of."""
    what = question.call.what
    if what in {"open", "open-how", "create", "truncate"}:
        return _opened(question, journal, is_real)
    if what in {"rename", "link"}:
        return _named(question, journal, is_real)
    if what == "change-open":
        path = question.open_path()
        return journal.changing(path) if _is_path(path) and not is_real(path) else None
    path = _bound(question) if what == "bind" else question.path()
    if not path or is_real(path):
        return None
    if what in {"unlink", "rmdir"}:
        folder = what == "rmdir" or bool(question.flags() & _REMOVE_FOLDER)
        return journal.removing(path, folder=folder)
    return journal.changing(path) if what == "change" else journal.making(path)


def _opened(question: AskedCall, journal: Journal, is_real: Callable[[str], bool]) -> Answer:
    flags = os.O_WRONLY
    if question.call.what == "open":
        flags = question.flags()
    elif question.call.what == "open-how":
        place = question.call.flags or 0
        (flags,) = struct.unpack("Q", question.memory(question.arguments[place], 8))
    elif question.call.what == "create":
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    elif question.arguments[1] == 0:
        flags = os.O_WRONLY | os.O_TRUNC
    if not flags & WRITES:
        return None
    exclusive = bool(flags & os.O_EXCL)
    creates = bool(flags & os.O_CREAT)
    path = question.path(follows=not flags & os.O_NOFOLLOW and not (exclusive and creates))
    if is_real(path):
        return None
    truncates = bool(flags & os.O_TRUNC)
    return journal.opened(path, truncates=truncates, creates=creates, exclusive=exclusive)


def _named(question: AskedCall, journal: Journal, is_real: Callable[[str], bool]) -> Answer:
    """A rename or a further name: both ends count."""
    flags, other = question.flags(), question.other()
    if question.call.what == "link":
        path = question.path(follows=bool(flags & _FOLLOW))
        return None if is_real(other) else journal.linking(path, other)
    path = question.path()
    if flags & _EXCHANGE:
        return _EINVAL
    if is_real(path) and is_real(other):
        return None
    return journal.renaming(path, other, replaces=not flags & _NO_REPLACE)


def _bound(question: AskedCall) -> str:
    """The path of a socket; empty for one that has none."""
    size = min(question.arguments[2] & 0xFFFFFFFF, 110)
    address = question.memory(question.arguments[1], size)
    family = int.from_bytes(address[:2], "little")
    name = address[2:].partition(b"\0")[0]
    if family != socket.AF_UNIX or not name:
        return ""
    raw = os.fsdecode(name)
    return raw if raw.startswith("/") else f"{os.readlink(f'/proc/{question.task}/cwd')}/{raw}"  # noqa: PTH115


def _is_path(path: str) -> bool:
    return path.startswith("/") and not path.endswith(" (deleted)")
