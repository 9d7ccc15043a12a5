"""Calibrations on disk: one file per machine and job, in the person's cache folder."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sfbench.common.errors import ResultError
from sfbench.common.files import write_whole
from sfbench.gating.fingerprint import Fingerprint
from sfbench.gating.gate_report import CalibrationNote
from sfbench.gating.statistics.calibration import CALIBRATION_SCHEMA, Calibration

OLD_DAYS = 30.0
"""A calibration that is older is warned about: machines change."""


def folder() -> Path:
    """``$SFBENCH_CACHE``, else ``sfbench`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    own = os.environ.get("SFBENCH_CACHE")
    if own:
        return Path(own)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "sfbench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a calibration holds for.

    The fingerprint alone says no more of a script than its name, since results may move between
    checkouts: here every ``train.py`` is its own.
    """

    fingerprint: Fingerprint
    script: str
    """Its whole path, or the name of a reference workload."""
    seconds: float
    """Measuring budget of a launch: longer ones are quieter."""

    @property
    def path(self) -> Path:
        """Where its calibration lies."""
        digest = hashlib.sha256(f"{self.script}\0{self.seconds:g}".encode()).hexdigest()
        return places() / f"{self.fingerprint.key}-{digest[:8]}.json"


def places() -> Path:
    """Where calibrations lie."""
    return folder() / "gate"


def job_of(calibration: Calibration) -> Job:
    """What it was measured of."""
    return Job(
        fingerprint=calibration.fingerprint,
        script=calibration.script,
        seconds=calibration.seconds,
    )


def store(calibration: Calibration) -> Path:
    """Write a calibration, in place of an older one, whole or not at all."""
    path = job_of(calibration).path
    write_whole(path, to_json(calibration))
    return path


def load(job: Job) -> Calibration | None:
    """The calibration of a job; None if there is none, or one of another version.

    Raises:
        ResultError: its file is damaged, or cannot be read.
    """
    path = job.path
    if not path.exists():
        return None
    try:
        text = path.read_text(encoding="utf-8")
        if json.loads(text)["schema"] != CALIBRATION_SCHEMA:
            return None
        return TypeAdapter(Calibration).validate_json(text)
    except OSError as error:
        raise ResultError(f"{path}: cannot be read: {error.strerror}") from error
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
        budget_s=calibration.budget_s,
        false_fail=calibration.false_fail,
        caught=calibration.caught,
        control_band=calibration.control_band,
    )
