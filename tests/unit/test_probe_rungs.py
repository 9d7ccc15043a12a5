"""Which rungs cannot run says why."""

from __future__ import annotations

import pytest

from sfbench.common.schema import LADDER
from sfbench.probe.replaying.unavailable_rungs import unavailable_rungs


@pytest.mark.parametrize(
    ("has_loader", "joins", "wrapper", "without"),
    [
        (True, False, "ddp", set()),
        (True, False, "none", set()),
        (False, False, "ddp", {"cached", "unsynced", "solo"}),
        (True, True, "ddp", {"cached", "unsynced", "solo"}),
        (True, False, "fsdp", {"unsynced", "solo"}),
        (True, False, "own-collectives", {"unsynced", "solo"}),
    ],
)
def test_rungs_that_cannot_run(
    has_loader: bool, joins: bool, wrapper: str, without: set[str]
) -> None:
    got = unavailable_rungs(LADDER, has_loader=has_loader, joins=joins, wrapper=wrapper)
    assert set(got) == without
    assert all(got.values())
