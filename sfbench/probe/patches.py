"""Replace attributes of libraries and put every one of them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ABSENT = object()


class Patches:
    """A stack of replaced attributes. ``restore`` undoes them, last one first."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Set ``owner.name`` to ``value`` and return what stood there (looked up, not bound)."""
        own = vars(owner).get(name, _ABSENT)
        before = getattr(owner, name)
        setattr(owner, name, value)
        self._undo.append((owner, name, own))
        return before

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace ``owner.name`` by ``make(owner.name)``."""
        self.replace(owner, name, make(getattr(owner, name)))

    def restore(self) -> None:
        """Put everything back. Safe to call twice."""
        while self._undo:
            owner, name, own = self._undo.pop()
            if own is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
