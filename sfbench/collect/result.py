"""sweep.json: a SweepResult as text and back. Neither torch nor pandas is imported."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sfbench.collect.validation import LARGEST_OF_ALL, faults
from sfbench.common.errors import ResultError
from sfbench.common.files import read_text
from sfbench.common.plain_text import shareable_values
from sfbench.common.schema import SCHEMA, SweepResult

FILE_NAME = "sweep.json"


def to_json(result: SweepResult) -> str:
    """The document of ``--json`` and of ``sweep.json``.

    Raises:
        ValueError: a number that is not finite, with its field: no document can carry it.
    """
    document = dataclasses.asdict(result)
    for field in _not_finite(document):
        raise ValueError(f"{field}: not a finite number")
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_result(path: Path, result: SweepResult) -> None:
    """Write ``sweep.json`` into the folder ``path``, whole or not at all."""
    part = path / f".{FILE_NAME}.part"
    part.write_text(to_json(result), encoding="utf-8")
    part.replace(path / FILE_NAME)


def load_result(path: Path) -> SweepResult:
    """Read a result folder or a ``sweep.json``. Fields that are not known are ignored.

    Raises:
        ResultError: missing, damaged, of a newer schema, or a field of the wrong type: it names
            the file and the field (``points.2.samples_per_s.value: ...``).
    """
    file = path / FILE_NAME if path.is_dir() else path
    return parse_result(_read(file), file)


def parse_result(text: str, file: Path) -> SweepResult:
    """The same from the text of ``file``.

    Raises:
        ResultError: as for ``load_result``.
    """
    document = _parse(file, text)
    _check_schema(file, document)
    try:
        result = TypeAdapter(SweepResult).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "damaged"
        raise ResultError(f"{file}: {field}: {first['msg']}") from error
    for fault in faults(result):
        raise ResultError(f"{file}: {fault}")
    return shareable_values(result)


def _read(file: Path) -> str:
    try:
        return read_text(file)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ResultError(
            f"{file}: no such result; give a result folder or its {FILE_NAME}"
        ) from error
    except OSError as error:
        raise ResultError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # bytes that are no text, or a NUL in the name
        raise ResultError(f"{file}: cannot be read: {error}") from error


def _parse(file: Path, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ResultError(f"{file}: damaged or cut short: {error}") from error
    except RecursionError as error:
        raise ResultError(f"{file}: damaged or cut short: too many brackets in brackets") from error
    except ValueError as error:  # an integer of thousands of digits
        raise ResultError(f"{file}: damaged: a number has too many digits") from error
    if not isinstance(document, dict):
        raise ResultError(f"{file}: not a sweep result")
    for field in _not_finite(document):
        raise ResultError(f"{file}: {field}: not a finite number")
    for field in _beyond(document):
        raise ResultError(f"{file}: {field}: so large a number cannot have been measured")
    return document


def _check_schema(file: Path, document: dict[str, Any]) -> None:
    schema = document.get("schema")
    if type(schema) is not int or schema < 1:
        raise ResultError(f"{file}: schema: {schema!r} is no version of a sweep result")
    if schema > SCHEMA:
        raise ResultError(
            f"{file}: schema: version {schema} is newer than {SCHEMA}, "
            "the newest this sfbench reads; upgrade sfbench"
        )


def _not_finite(document: object) -> Iterator[str]:
    """Fields, dotted, whose number is nan or infinite."""
    return (
        field
        for field, value in _numbers(document)
        if isinstance(value, float) and not math.isfinite(value)
    )


def _beyond(document: object) -> Iterator[str]:
    """Fields, dotted, whose number is larger than anything."""
    return (field for field, value in _numbers(document) if abs(value) > LARGEST_OF_ALL)


def _numbers(value: object, field: str = "") -> Iterator[tuple[str, int | float]]:
    """Every number of a document, with its field."""
    if isinstance(value, int | float):
        yield field, value
        return
    if isinstance(value, dict):
        items: Iterator[tuple[object, object]] = iter(value.items())
    elif isinstance(value, list | tuple):
        items = iter(enumerate(value))
    else:
        return
    for key, child in items:
        yield from _numbers(child, f"{field}.{key}" if field else str(key))
