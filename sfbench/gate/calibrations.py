"""Calibrations on disk: one file per fingerprint, in the person's cache folder."""

from __future__ import annotations

import dataclasses
import json
import os
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sfbench.errors import ResultError
from sfbench.gate.calibration import CALIBRATION_SCHEMA, Calibration
from sfbench.gate.fingerprint import Fingerprint
from sfbench.gate.model import CalibrationNote

OLD_DAYS = 30.0
"""A calibration that is older is warned about: machines change."""


def folder() -> Path:
    """``$SFBENCH_CACHE``, else ``sfbench`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    own = os.environ.get("SFBENCH_CACHE")
    if own:
        return Path(own)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "sfbench"


def path_for(fingerprint: Fingerprint) -> Path:
    """Where the calibration of a fingerprint lies."""
    return folder() / "gate" / f"{fingerprint.key}.json"


def store(calibration: Calibration) -> Path:
    """Write a calibration, in place of an older one, whole or not at all."""
    path = path_for(calibration.fingerprint)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(to_json(calibration), encoding="utf-8")
    part.replace(path)
    return path


def load(fingerprint: Fingerprint) -> Calibration | None:
    """The calibration of a fingerprint; None where there is none, or one of another version.

    Raises:
        ResultError: its file is damaged.
    """
    path = path_for(fingerprint)
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    try:
        if json.loads(text)["schema"] != CALIBRATION_SCHEMA:
            return None
        return TypeAdapter(Calibration).validate_json(text)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise ResultError(
            f"{path}: damaged: {error}. Remove it, and run `sfbench gate calibrate` again."
        ) from error


def to_json(calibration: Calibration) -> str:
    """One document."""
    return json.dumps(dataclasses.asdict(calibration), indent=1, allow_nan=False) + "\n"


def note(calibration: Calibration, now: datetime) -> CalibrationNote:
    """What a gate quotes; ``now`` with its time zone."""
    age = now - datetime.fromisoformat(calibration.measured_at)
    return CalibrationNote(
        measured_at=calibration.measured_at,
        age_days=age.total_seconds() / 86_400,
        margin=calibration.margin,
        false_fail=calibration.false_fail,
        caught=calibration.caught,
        control_band=calibration.control_band,
    )
