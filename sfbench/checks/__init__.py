"""Correctness checks: what goes wrong silently. One file per check; all are pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from sfbench.checks import (
    accumulation_sync,
    batch_meaning,
    checkpoint_keys,
    checkpoint_writers,
    data_sharding,
    download_race,
    epoch_shuffle,
    independent_copies,
    learning_rate,
    skipped_updates,
    split_leak,
    threads,
    uneven_inputs,
    unused_parameters,
)
from sfbench.checks.facts import LaunchFacts, result, worst
from sfbench.common.schema import CheckResult

_OF_A_LAUNCH = (
    independent_copies,
    data_sharding,
    epoch_shuffle,
    split_leak,
    uneven_inputs,
    checkpoint_keys,
    checkpoint_writers,
    download_race,
    accumulation_sync,
)
_LAST = (skipped_updates, unused_parameters)
CHECKS: tuple[str, ...] = (
    *(module.ID for module in _OF_A_LAUNCH),
    learning_rate.ID,
    batch_meaning.ID,
    threads.ID,
    *(module.ID for module in _LAST),
)
"""Every check's id, in the order in which they are shown."""


def run_checks(
    launches: Sequence[LaunchFacts], scaling: Literal["weak", "strong"] = "weak"
) -> tuple[CheckResult, ...]:
    """All checks, in order, over the launches of a sweep, or the one of ``sfbench check``.

    A check of one launch takes those at two devices or more, and its worst result counts. One that
    compares device counts takes all.
    """
    several = [launch for launch in launches if launch.devices > 1]
    return (
        *(_of_a_launch(module.ID, module.check, several) for module in _OF_A_LAUNCH),
        learning_rate.check(launches),
        batch_meaning.check(launches, scaling),
        threads.check(launches),
        *(_of_a_launch(module.ID, module.check, several) for module in _LAST),
    )


def _of_a_launch(
    check_id: str, check: Callable[[LaunchFacts], CheckResult], launches: Sequence[LaunchFacts]
) -> CheckResult:
    if not launches:
        return result(check_id, "not-applicable", "Only one device was used.")
    return worst([check(launch) for launch in launches])
