"""How a rank comes under its launch's guard: the first thing that it does."""

from __future__ import annotations

import os

from sfbench.guard import linux
from sfbench.guard.ticket import Ticket


def enter(ticket: Ticket) -> None:
    """Put this process, and all that it starts, under the guard. Call with a single thread.

    Raises ``OSError`` where the guard is gone: the script must not be run then.
    """
    here = os.getcwd()  # noqa: PTH109
    namespace = os.open(ticket.path, os.O_RDONLY)
    try:
        linux.setns(namespace, linux.NEW_MOUNTS)
    finally:
        os.close(namespace)
    os.chdir(here)
