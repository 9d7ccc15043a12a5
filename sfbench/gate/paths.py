"""Which changed files matter to a gate. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_WILDCARDS = {"**": ".*", "*": "[^/]*", "?": "[^/]"}


def touched(changed: Iterable[str], patterns: Sequence[str]) -> bool:
    """Whether any changed path matches a pattern like ``data/**`` or ``transforms.py``.

    ``**`` spans folders, ``*`` and ``?`` do not; a folder stands for all in it. A pattern may begin
    at any folder: one file too many costs a measurement, one too few lets a regression through.
    """
    rules = [re.compile(_expression(pattern)) for pattern in patterns]
    return any(rule.fullmatch(path) for path in changed for rule in rules)


def _expression(pattern: str) -> str:
    plain = pattern.removeprefix("./").removeprefix("**/").strip("/")
    words = re.split(r"(\*\*|\*|\?)", plain)
    body = "".join(_WILDCARDS.get(word, re.escape(word)) for word in words)
    return rf"(?:.*/)?{body.replace('/.*/', '/(?:.*/)?')}(?:/.*)?"
