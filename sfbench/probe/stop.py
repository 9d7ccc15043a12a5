"""How a script is left: exceptions that ``except Exception`` does not swallow."""

from __future__ import annotations

import os

from sfbench.protocol.rank_streams import flush_streams


class StopRun(BaseException):
    """The measurement is complete; every rank raises it at the same step."""


class Refused(BaseException):
    """The script runs but cannot be measured; carries the failure kind and the reason."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def leave_at_once(code: int) -> None:
    """End this process without running any more of the script.

    Used if the script swallowed the exception and went on: nothing of it may run any further.
    """
    flush_streams()
    os._exit(code)
