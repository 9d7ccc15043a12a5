"""Text of scripts, machines and documents, made harmless for a page that others will read."""

from __future__ import annotations

import re

from markupsafe import Markup

from sfbench.common.plain_text import without_homes

# Marks that turn or hide the text around them (Unicode TR 9, and zero-width ones), and controls.
_UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\x00-\x08\x0b-\x1f\x7f-\x9f]")
LONGEST = 4_000
"""Characters of one text; what is longer is cut in the middle."""


def shown(value: object) -> object:
    """What a template may print: unseen characters named, home folders as ``~``, length bounded.

    Markup is the report's own and passes as it is.
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    text = without_homes(_UNSEEN.sub(_named, value))
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} … {len(text) - LONGEST} characters left out … {text[-half:]}"


def _named(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
