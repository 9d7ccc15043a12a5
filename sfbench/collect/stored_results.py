"""Results on disk and on stdin: which there are, and which one a person means."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from sfbench.collect.result import FILE_NAME, load_result, parse_result
from sfbench.common.errors import ResultError
from sfbench.common.schema import SweepResult

STDIN = Path("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """A result folder."""

    place: Path
    result: SweepResult | None
    error: str | None
    """Why it cannot be read."""


def stored_results(output: Path) -> tuple[StoredResult, ...]:
    """The result folders in ``output``, the newest first; those that cannot be read last."""
    found = [_stored(file.parent) for file in sorted(output.glob(f"*/{FILE_NAME}"))]
    return tuple(sorted(found, key=_started, reverse=True))


def latest_result(output: Path) -> SweepResult:
    """The one that was started last.

    Raises:
        ResultError: there is none.
    """
    for stored in stored_results(output):
        if stored.result is not None:
            return stored.result
    raise ResultError(f"{output}: no result here; make one with `sfbench sweep`, or name a result")


def open_result(named: Path, output: Path) -> SweepResult:
    """A result by its path, by its name in ``output``, or from stdin (``-``).

    Raises:
        ResultError: it is missing, damaged or newer; the field is named.
    """
    if named == STDIN:
        return parse_result(sys.stdin.read(), Path("stdin"))
    here = output / named
    by_name = not named.exists() and len(named.parts) == 1 and here.exists()
    return load_result(here if by_name else named)


def _stored(place: Path) -> StoredResult:
    try:
        return StoredResult(place=place, result=load_result(place), error=None)
    except ResultError as error:
        return StoredResult(place=place, result=None, error=str(error))


def _started(stored: StoredResult) -> str:
    return stored.result.environment.started_at if stored.result is not None else ""
