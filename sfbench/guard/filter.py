"""Has the kernel ask before a call that changes files, in this process and all that it starts."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

from sfbench.guard import linux
from sfbench.guard.calls import Architecture, Call, this_architecture

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ASK, _FAIL = 0x7FFF0000, 0x7FC00000, 0x00050000
_FOREIGN = 0x40000000
"""Numbers from here up are of another calling convention (x32)."""
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_NO_NEW_PRIVILEGES = 38
_SET_FILTER = 1
_NEW_LISTENER = 1 << 3
_UNDISTURBED = 1 << 5
"""A call that is being judged is not begun again because of a signal."""

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if not, value."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def program(machine: Architecture) -> tuple[Instruction, ...]:
    """The filter: reading, and whatever else changes no file, passes at full speed."""
    fail = _FAIL | errno.ENOSYS
    rows: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, machine.architecture),
        (_RETURN, 0, 0, fail),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _FOREIGN),
        (_RETURN, 0, 0, fail),
    ]
    for number in machine.refused:
        rows += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, fail)]
    for call in machine.calls:
        rows += _rows(call)
    return (*rows, (_RETURN, 0, 0, _ALLOW))


def install() -> int:
    """Put the filter in place; returns the descriptor at which the kernel asks.

    Cannot be undone. Raises ``OSError`` if the kernel does not offer it.
    """
    machine = this_architecture()
    code = b"".join(struct.pack("HBBI", *row) for row in program(machine))
    filled = _Program(len(code) // 8, code)
    linux.prctl(_NO_NEW_PRIVILEGES, 1)
    place = ctypes.addressof(filled)
    try:
        return linux.call(machine.seccomp, _SET_FILTER, _NEW_LISTENER | _UNDISTURBED, place)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a kernel before 5.19
            raise
    return linux.call(machine.seccomp, _SET_FILTER, _NEW_LISTENER, place)


def _rows(call: Call) -> Sequence[Instruction]:
    if call.what != "open":
        return ((_EQUAL, 0, 1, call.number), (_RETURN, 0, 0, _ASK))
    at = _ARGUMENTS + 8 * (call.flags or 0)
    return (
        (_EQUAL, 0, 4, call.number),
        (_LOAD, 0, 0, at),
        (_ANY_BIT, 0, 1, WRITES),
        (_RETURN, 0, 0, _ASK),
        (_RETURN, 0, 0, _ALLOW),
    )
