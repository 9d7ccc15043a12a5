"""What a tune tried, as the report shows it: text, nothing left to decide for the template."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeView:
    """A call to change."""

    place: str
    """File, line, call and arguments, in words."""
    diff: str
    """Unified; empty if the call is not literal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedView:
    """A tune on top of the report of its diagnosis."""

    headline: str
    remarks: tuple[str, ...]
    """What sets the limit, what must be said beside the numbers."""
    confirmed: str
    """The gain of fresh launches, in words; empty: none."""
    changes: tuple[ChangeView, ...]
    cautions: tuple[str, ...]
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """One per trial; the first cell names its settings."""
    reasons: tuple[str, ...]
    """Why trials failed or were not made."""
