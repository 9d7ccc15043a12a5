"""How a rank comes under its launch's guard: the first thing that it does."""

from __future__ import annotations

import os
import socket

from sfbench.guard import filter, linux
from sfbench.guard.ticket import Ticket


def enter(ticket: Ticket) -> None:
    """Put this process, and all that it starts, under the guard. Call with a single thread.

    Raises ``OSError`` where the guard is gone: the script must not be run then.
    """
    if ticket.kind == "overlay":
        _enter_view(ticket.path)
    else:
        _ask_before_changes(ticket.address)


def _enter_view(path: str) -> None:
    try:
        here = os.getcwd()  # noqa: PTH109
    except FileNotFoundError:  # removed meanwhile
        here = "/"
    namespace = os.open(path, os.O_RDONLY)
    try:
        linux.setns(namespace, linux.NEW_MOUNTS)
    finally:
        os.close(namespace)
    os.chdir(here)


def _ask_before_changes(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as keeper:
        keeper.connect(f"\0{address}")
        listener = filter.install()
        try:
            socket.send_fds(keeper, [b"l"], [listener])
            if not keeper.recv(1):
                raise ConnectionError("the guard does not take this process")
        finally:
            os.close(listener)
