"""Which changed files matter to a gate. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from sfbench.common.errors import UsageError

_WORDS = re.compile(r"(\*\*|\*|\?|\[[^\]]+\])")
_WILDCARDS = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
_ALL = "**"


def rooted(pattern: str, root: Path, here: Path) -> str:
    """A pattern as it is below the repository's root: absolute ones and ``../`` are taken apart.

    Raises:
        UsageError: it leads out of the repository.
    """
    plain = pattern.removeprefix("./")
    if not plain.startswith(("/", "..")) and plain != ".":
        return plain
    whole = os.path.normpath(here / plain)
    if whole == str(root):
        return _ALL
    if not whole.startswith(f"{root}/"):
        raise UsageError(f"--paths {pattern!r}: that is outside of {root}")
    return whole.removeprefix(f"{root}/")


def touched(changed: Iterable[str], patterns: Sequence[str]) -> bool:
    """Whether any changed path matches a pattern like ``data/**`` or ``transforms.py``.

    ``**`` spans folders, ``*``, ``?`` and ``[abc]`` do not; a folder stands for all in it. A
    pattern may begin at any folder: one file too many costs a measurement, one too few lets a
    regression through.
    """
    rules = [_rule(pattern) for pattern in patterns]
    return any(rule.fullmatch(path) for path in changed for rule in rules)


def idle(known: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Patterns that match none of the paths that there are: likely a slip."""
    paths = list(known)
    return [p for p in patterns if not any(map(_rule(p).fullmatch, paths))]


def _rule(pattern: str) -> re.Pattern[str]:
    plain = pattern.removeprefix("./").removeprefix("**/").strip("/") or _ALL
    words = (_expression(word) for word in _WORDS.split(plain))
    body = "".join(words).replace("/.*/", "/(?:.*/)?")
    return re.compile(rf"(?:.*/)?{body}(?:/.*)?", re.DOTALL)


def _expression(word: str) -> str:
    if len(word) > 2 and word.startswith("[") and word.endswith("]"):
        inside = word[1:-1].replace("\\", "\\\\")
        return f"[^{inside[1:]}/]" if inside[0] in "!^" else f"(?!/)[{inside}]"
    return _WILDCARDS.get(word) or re.escape(word)
