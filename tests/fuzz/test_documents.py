"""A share of the odd documents; ``make fuzz`` runs ten thousand."""

from __future__ import annotations

from collections import Counter

import documents

COUNT = 80


def test_odd_documents_are_taken_or_refused_by_a_clear_error() -> None:
    ends = Counter(end for _, end in documents.run(COUNT, seed=3))
    defects = [end for end in ends if end.startswith(("defect", "an error without words"))]
    assert not defects
    assert ends["refused"] > COUNT // 3  # else the documents are not odd
    assert ends["taken"]
