"""Measures the matrix of faults: ``python tests/faults/accuracy.py [CASE...]``.

Without names everything is measured and docs/accuracy.md is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from matrix import CASES, Case
from measure import measure
from page import PAGE, text
from score import Scored, Summary, score


def measured(cases: Iterable[Case]) -> Summary:
    """Measure and score cases, one after the other, saying so."""
    scored = []
    for case in cases:
        one = score(measure(case))
        print(line(one), file=sys.stderr, flush=True)
        scored.append(one)
    return Summary(scored=tuple(scored))


def line(scored: Scored) -> str:
    """One case as one line."""
    sizes = ""
    if scored.truth is not None and scored.found is not None:
        sizes = f" {100 * scored.truth:.1f} injected, {100 * scored.found:.1f} found"
        if scored.low is not None and scored.high is not None:
            sizes += f" [{100 * scored.low:.1f} {100 * scored.high:.1f}]"
    mark = "ok " if scored.cause_right and scored.size_right is not False else "BAD"
    held = "" if scored.covered is not False else " (not covered)"
    failed = "".join(f"; {error}" for error in (*scored.refused, *scored.failed))
    name = f"{scored.case.name:18}"
    return f"{mark} {name} {scored.first}{sizes}{held}, others {scored.busy:.0%}{failed}"


def main(names: list[str]) -> int:
    """Exit code: 1 where the budget is missed."""
    cases = [case for case in CASES if not names or case.name in names]
    summary = measured(cases)
    if not names:
        PAGE.write_text(text(summary), encoding="utf-8")
    for miss in summary.misses():
        print(f"budget missed: {miss}", file=sys.stderr)
    return 1 if summary.misses() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
