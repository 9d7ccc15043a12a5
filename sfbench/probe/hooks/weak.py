"""Values by object, for as long as the object lives: nothing is written on what is not ours."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class WeakTable(Generic[T]):
    """Like a WeakKeyDictionary, but by identity, and without a Python call to look up a value."""

    def __init__(self) -> None:
        self.by_id: dict[int, T] = {}
        """For the places where each call counts: ``by_id.get(id(owner))``."""
        self._alive: dict[int, Any] = {}

    def get(self, owner: Any) -> T | None:
        """The value of an object, None if it has none."""
        return self.by_id.get(id(owner))

    def put(self, owner: Any, value: T) -> T:
        """Set and return the value of an object."""
        key = id(owner)

        def forget(_: Any) -> None:
            self._alive.pop(key, None)
            self.by_id.pop(key, None)

        self._alive[key] = weakref.ref(owner, forget)
        self.by_id[key] = value
        return value
