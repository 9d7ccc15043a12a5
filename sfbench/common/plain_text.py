"""Text from outside, made harmless: the one place that cleans and cuts it.

Scripts, host names and documents may hold anything: what steers a terminal, turns the direction of
writing around, is obeyed by a build server, or is megabytes long.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

MESSAGE = 2_000
"""Characters of a message."""
LINE = 400
"""Characters of one line of a log."""
VALUE = 20_000
"""Characters of any one text in a document."""

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?|\x9b[0-?]*[ -/]*[@-~]"
)
_BREAKS = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
"""Marks that have no width, or turn the direction of writing around."""
_LONE = re.compile("[\ud800-\udfff]")
"""Bytes of a name that are no text: they cannot be written anywhere."""
_OBEYED = "error|warning|notice|debug|group|endgroup|echo|add-|set-|save-|stop-|remove-"
_COMMANDS = re.compile(
    rf"^([ \t]*)(::|##(?=\[|vso|teamcity))|(?<=[ \t])()(::(?=(?:{_OBEYED})))", re.MULTILINE
)
"""Build servers obey lines that begin like this; text is wrapped, so a word may begin one."""

_HOME = re.compile(r"(?<![\w/.-])(?:/(?:home|Users)/[^/\s\"'<>:]+|/root(?=[/\s:]|$))")
_INNER_HOME = re.compile(r"(?<=[\w.-])(/(?:home|Users)/)[^/\s\"'<>:]+(?=/)")
"""A home folder below another one: ``/data/home/alice/``."""

_MARKUP = re.compile(r"[\\\\`*_{}\[\]#|~]")


def plain(text: str, most: int = MESSAGE) -> str:
    """The text without what steers anything, cut to ``most`` characters. Line breaks stay."""
    left_out = len(text) - most
    text = _BREAKS.sub("\n", _ESCAPES.sub("", text[: 2 * most]))
    text = _LONE.sub(_escaped, _UNSEEN.sub("", _CONTROLS.sub("", text)))
    if left_out > 0:
        text = f"{text[:most]} … ({left_out:,} more characters)"
    return _COMMANDS.sub(_disarmed, text)


def one_line(text: str, most: int = LINE) -> str:
    """The same in one line."""
    return " ".join(plain(text, most).split())


def markdown_text(text: str) -> str:
    """One line in which nothing is taken for markup, a link or a mention."""
    escaped = _MARKUP.sub(r"\\\g<0>", " ".join(text.split())).replace("<", "&lt;")
    # A character of no width: nobody is called by what a script printed, and no link is made.
    return escaped.replace("@", "@\u200b").replace("://", ":\u200b//")


def plain_values(value: T, most: int = VALUE) -> T:
    """A value of dataclasses, mappings and sequences with every text in it made plain."""
    return _with_texts(value, lambda text: plain(text, most))  # type: ignore[no-any-return]


def shareable_values(value: T) -> T:
    """The same, and without home folders: what is stored is mailed, and kept as an artifact."""
    return _with_texts(value, lambda text: without_homes(plain(text, VALUE)))  # type: ignore[no-any-return]


def without_homes(text: str) -> str:
    """Home folders as ``~``, which a shell makes whole again, and so without the user's name."""
    return _INNER_HOME.sub(r"\1USER", _HOME.sub("~", text))


def _with_texts(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_with_texts(k, clean): _with_texts(v, clean) for k, v in value.items()}
    if isinstance(value, list):
        return [_with_texts(part, clean) for part in value]
    if type(value) is tuple:
        return tuple(_with_texts(part, clean) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init]
        changed = {name: new for name, old in fields if (new := _with_texts(old, clean)) != old}
        return dataclasses.replace(value, **changed) if changed else value
    return value


def _escaped(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]) & 0xFF:02x}"


def _disarmed(found: re.Match[str]) -> str:
    return f"{found[1] or ''}.{found[2] or found[4]}"
