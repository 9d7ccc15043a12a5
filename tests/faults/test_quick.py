"""A few large faults, injected for real: cause, rank and size."""

from __future__ import annotations

import pytest
from accuracy import line
from matrix import QUICK, Case
from measure import measure
from score import SUM, score


@pytest.mark.parametrize("case", QUICK, ids=[case.name for case in QUICK])
def test_a_large_fault_is_named_with_its_size(case: Case) -> None:
    scored = score(measure(case, wait_s=0.0, attempts=1))

    assert scored.cause_right, line(scored)
    assert scored.size_right, line(scored)
    assert scored.sum_error <= SUM
