"""Every error sfbench raises on purpose: one root, one child per thing the caller can do about it.

The command line turns each class into text and an exit code in one place (``sfbench.cli``).
"""

from __future__ import annotations


class SfbenchError(Exception):
    """Root of all deliberate errors. The text says what failed, where, and what to try."""

    exit_code = 4


class UsageError(SfbenchError):
    """The command, an option, or a setting is wrong: change it and run again."""

    exit_code = 2


class ResultError(UsageError):
    """A result folder is missing, damaged or written by a newer version: the field is named."""


class MeasureError(SfbenchError):
    """Nothing could be measured: no steps seen, no steady state, no point succeeded."""

    exit_code = 4


class Unsteady(MeasureError):
    """A launch that never came to a steady state: it gives no number, another may."""


class ScriptError(SfbenchError):
    """The training script itself failed: the text names rank, last lines and log."""

    exit_code = 5


class InterruptedSweep(SfbenchError):
    """Ctrl-C or SIGTERM: finished points are kept."""

    exit_code = 130
