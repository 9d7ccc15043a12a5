"""One tap per function of a library: who listens to its calls, and what stands there meanwhile.

A listener is a function that makes a stand-in around what it is given. The stand-in of a tap is
made anew whenever a listener comes or leaves; with none left, the original is back. So nobody who
has seen enough costs anything any more.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch._dynamo
import torch.distributed._functional_collectives as fcol

F = TypeVar("F", bound=Callable[..., Any])
Make = Callable[[Any], Any]
"""Makes a stand-in around an original."""

_ABSENT = object()
_COMPILED: dict[Any, Any] = getattr(fcol, "traceable_collective_remaps", {})
"""What torch.compile puts in the place of functions that it cannot look into."""


class Tap:
    """One function of a library. Those who listen first are the innermost."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self._name = owner, name
        self._own = vars(owner).get(name, _ABSENT)
        self.original = getattr(owner, name)
        """What stood there before, looked up and not bound."""
        self._standing: Any = self._own
        self._listeners: list[Listener] = []
        self._compiled: list[Any] = []
        """Stand-ins that torch.compile exchanges as it would the original."""

    def add(self, make: Make, *, traced: bool = False) -> Listener:
        """Listen from now on."""
        listener = Listener(self, make, traced=traced)
        self._listeners.append(listener)
        self.rebuild()
        return listener

    def drop(self, listener: Listener) -> None:
        """Listen no longer; no harm in doing it twice."""
        if listener in self._listeners:
            self._listeners.remove(listener)
            self.rebuild()

    def restore(self) -> None:
        """Put the original back, whatever the script has put there since."""
        self._listeners.clear()
        self._put(self._own)
        while self._compiled:
            _COMPILED.pop(self._compiled.pop(), None)

    def rebuild(self) -> None:
        """Make the stand-in from those who listen now."""
        if vars(self._owner).get(self._name, _ABSENT) is not self._standing:
            return  # the script has wrapped ours: it calls what it found there
        if not self._listeners:
            self._put(self._own)
            return
        call = self.original
        for listener in self._listeners:
            call = _dressed(listener.make(call), self.original, traced=listener.traced)
        if isinstance(self.original, types.FunctionType) and self.original in _COMPILED:
            _COMPILED[call] = _COMPILED[self.original]
            self._compiled.append(call)
        self._put(call)

    def _put(self, value: Any) -> None:
        if value is not _ABSENT:
            setattr(self._owner, self._name, value)
        elif self._name in vars(self._owner):
            delattr(self._owner, self._name)
        self._standing = value


class Listener:
    """One who listens to a tap."""

    def __init__(self, tap: Tap, make: Make, *, traced: bool = False) -> None:
        self._tap = tap
        self.make = make
        self.traced = traced
        """torch.compile looks into it."""

    def swap(self, make: Make) -> None:
        """Go on listening, at the same place, with another function."""
        self.make = make
        self._tap.rebuild()

    def leave(self) -> None:
        """Having seen enough, listen no longer."""
        self._tap.drop(self)


class Taps:
    """The taps of a measurement. ``restore`` removes them all, the last one first."""

    def __init__(self) -> None:
        self._taps: dict[tuple[int, str], Tap] = {}

    def wrap(self, owner: Any, name: str, make: Make, *, traced: bool = False) -> Listener:
        """Listen to ``owner.name``: ``make(original)`` stands in for it.

        ``traced``: torch.compile may look into it, since it does nothing that a graph cannot hold.
        """
        tap = self._taps.get((id(owner), name))
        if tap is None:
            tap = self._taps[id(owner), name] = Tap(owner, name)
        return tap.add(make, traced=traced)

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Put ``value`` where ``owner.name`` stands."""
        self.wrap(owner, name, lambda original: value)

    def restore(self) -> None:
        """Put everything back. Safe to call twice."""
        while self._taps:
            self._taps.popitem()[1].restore()


def _dressed(stand_in: Any, original: Any, *, traced: bool) -> Any:
    """With the name, the signature and the attributes of what it stands for.

    Libraries look at them: at the arguments of a loader before they make it again, for example.
    """
    functools.update_wrapper(stand_in, original)
    plain = isinstance(stand_in, types.FunctionType) and not traced
    return uncompiled(stand_in) if plain else stand_in


def uncompiled(stand_in: F) -> F:
    """Kept out of what torch.compile compiles: the code is marked, which costs no call.

    What it stands for is compiled as ever.
    """
    torch._dynamo.decorators.skip(stand_in)
    return stand_in


def apart(work: F) -> F:
    """What a hook calls now and then: torch.compile compiles nothing inside it."""
    return torch.compiler.disable(work)  # type: ignore[no-any-return, no-untyped-call]
