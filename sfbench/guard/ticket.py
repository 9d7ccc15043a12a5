"""What the parts of the guard tell each other. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["overlay", "journal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a launch needs from its guard."""

    real: tuple[str, ...]
    """Folders of the tool's own, which ranks and launcher share: never guarded."""
    near: tuple[str, ...]
    """Folders in which the script is likely to write: the first that fits holds what it writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """How a rank comes under the guard of its launch."""

    kind: Kind
    path: str
    """overlay: of the namespace to enter. journal: of the journal."""
    wanted: Wanted
    address: str = ""
    """journal: name of the socket at which the kernel's questions are taken."""
    notes: tuple[str, ...] = ()
    """What a reader of the launch's result has to know."""
