"""Results on disk and on stdin: which there are, and which one a person means."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfbench.collect.result import FILE_NAME, load_result, parse_result
from sfbench.collect.result_folder import STEPS_NAME
from sfbench.common.errors import ResultError
from sfbench.common.schema import SweepResult

if TYPE_CHECKING:
    import pandas as pd

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
    return load_result(_place(named, output))


def open_steps(named: Path, output: Path) -> pd.DataFrame:
    """The step frame beside a result.

    Raises:
        ResultError: there is none, or it is damaged.
    """
    place = _place(named, output)
    folder = place if place.is_dir() else place.parent
    if named == STDIN or not (folder / STEPS_NAME).is_file():
        raise ResultError(
            f"{named}: no {STEPS_NAME} beside it: name the folder of a result that has one"
        )
    import pandas as pd

    try:
        return pd.read_parquet(folder / STEPS_NAME)
    except (OSError, ValueError) as error:
        raise ResultError(f"{folder / STEPS_NAME} cannot be read: {error}") from error


def _place(named: Path, output: Path) -> Path:
    """A folder of that name beside the script, which is no result, does not hide the result."""
    here = output / named
    other = named.is_dir() and not (named / FILE_NAME).exists() and (here / FILE_NAME).exists()
    by_name = len(named.parts) == 1 and (other or (not named.exists() and here.exists()))
    return here if by_name else named


def _stored(place: Path) -> StoredResult:
    try:
        return StoredResult(place=place, result=load_result(place), error=None)
    except ResultError as error:
        return StoredResult(place=place, result=None, error=str(error))


def _started(stored: StoredResult) -> str:
    return stored.result.environment.started_at if stored.result is not None else ""
