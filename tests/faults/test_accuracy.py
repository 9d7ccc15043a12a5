"""The whole matrix beside the accuracy budget; writes docs/accuracy.md."""

from __future__ import annotations

import pytest
from accuracy import measured
from matrix import CASES
from page import PAGE, text


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_accuracy_budget_is_met() -> None:
    summary = measured(CASES)
    PAGE.write_text(text(summary), encoding="utf-8")

    assert summary.misses() == ()
