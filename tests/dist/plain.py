"""Runs scripts by themselves, without sfbench."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

_ABORT = "terminate called without an active exception"
"""gloo may abort a rank while the interpreter exits after a perfectly good run: torch's fault, and
seen in some of a hundred runs. What the script did is judged by another run."""
_TRIES = 3


def run_plain(
    argv: Sequence[str], env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """The end of a process; run again where it was aborted on its way out."""
    for _ in range(_TRIES):
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if done.returncode == 0 or _ABORT not in done.stderr:
            break
    return done
